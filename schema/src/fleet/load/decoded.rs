//! Decoding one object by itself: a pure function of its file's path and text, so it is done side by side, once for
//! each text, and kept with the file.

use std::sync::Arc;

use crate::{
    diagnostic::{Diagnostic, SourceRef, codes},
    fleet::{
        ApiAccess, Batch, FleetDocument, Freeze, Image, Located, Moved, Node, Pool, Profile, Quota, Release, Removed,
        Rollout, Site, Tenant,
        decode::{Fields, Findings, Subject, name_of},
        doc::Object,
        fleet_object::{Made, made},
        kind,
        places::Keys,
        suggest::similar,
    },
    name::Name,
    object::{Kind, ObjectRef},
};

/// What one object of a file is.
#[derive(Debug)]
pub(super) struct Decoded {
    /// What is wrong with it.
    pub(super) findings: Vec<Diagnostic>,
    /// The objects that it names.
    pub(super) refers: Vec<Located<ObjectRef>>,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// Nothing that has an address.
    Nothing,
    Moved(Moved),
    Removed(Removed),
    /// An object, with its model when nothing is wrong with it.
    Object {
        address: ObjectRef,
        at: SourceRef,
        model: Option<(Typed, Arc<Made>)>,
    },
}

/// Defines [`Typed`] and what is done with each kind of it.
macro_rules! typed {
    ($($kind:ident: $model:ty, $module:ident;)*) => {
        /// The model of an object.
        #[derive(Debug)]
        pub(super) enum Typed {
            /// There may be many of these, and they are shared.
            Node(Arc<Node>),
            $($kind(Box<$model>),)*
        }

        /// Reads an object's keys. It is kept when it decodes without an error of its own.
        fn typed(kind: Kind, subject: &mut Subject<'_>, keys: Keys, findings: &mut Findings<'_>) -> Option<(Typed, Arc<Made>)> {
            let before = findings.errors();
            match kind {
                Kind::Node => {
                    let model = kind::node::decode(subject, findings);
                    subject.fields.finish(findings);
                    let model = model.filter(|_| findings.errors() == before)?;
                    let made = made(kind, &model.name, &model, &model.at, keys);
                    Some((Typed::Node(Arc::new(model)), made))
                }
                $(Kind::$kind => {
                    let model = kind::$module::decode(subject, findings);
                    subject.fields.finish(findings);
                    let model = model.filter(|_| findings.errors() == before)?;
                    let made = made(kind, &model.name, &model, &model.at, keys);
                    Some((Typed::$kind(Box::new(model)), made))
                })*
                Kind::Moved | Kind::Removed => None,
            }
        }
    };
}

typed! {
    Fleet: FleetDocument, fleet_doc;
    Site: Site, site;
    Pool: Pool, pool;
    Profile: Profile, profile;
    Image: Image, image;
    Rollout: Rollout, rollout;
    Release: Release, release;
    Tenant: Tenant, tenant;
    Quota: Quota, quota;
    Access: ApiAccess, access;
    Batch: Batch, batch;
    Freeze: Freeze, freeze;
}

/// Decodes an object; `root` is whether its file is the fleet file, `keys` where its keys can be looked up later.
pub(super) fn decode(object: &Object, root: bool, keys: Keys) -> Decoded {
    let mut found = Vec::new();
    let text = Arc::clone(&keys.text);
    let mut findings = Findings::new(Arc::clone(&keys.file), &text, &mut found);
    let what = one(object, root, keys, &mut findings);
    let refers = findings.refers;
    Decoded { findings: found, refers, what }
}

fn one(object: &Object, root: bool, keys: Keys, findings: &mut Findings<'_>) -> What {
    let (word, span) = &object.kind;
    let Ok(kind) = word.parse::<Kind>() else {
        unknown(object, findings);
        return What::Nothing;
    };
    match kind {
        Kind::Removed => return kind::removed::decode(object, findings).map_or(What::Nothing, What::Removed),
        Kind::Moved => return kind::moved::decode(object, findings).map_or(What::Nothing, What::Moved),
        _ => {}
    }
    if kind == Kind::Fleet && !root {
        let diagnostic =
            findings.at(codes::SECOND_ROOT, *span, "`fleet` is said in the fleet file at the root, and only there");
        findings.push(diagnostic);
        return What::Nothing;
    }
    let name = match (&object.name, kind) {
        (None, Kind::Fleet) => Name::new("fleet").ok(),
        _ => name_of(object, findings),
    };
    let Some(name) = name else {
        nameless(kind, object, keys, findings);
        return What::Nothing;
    };
    let at = findings.place(object.name.as_ref().map_or(*span, |name| name.span));
    let address = ObjectRef::new(kind, name.clone());
    let fields = Fields::new(kind.as_str(), object.span, &object.fields);
    let mut subject = Subject { name, at: at.clone(), fields };
    What::Object { address, at, model: typed(kind, &mut subject, keys, findings) }
}

fn unknown(object: &Object, findings: &mut Findings<'_>) {
    let (word, span) = &object.kind;
    let shown: String = word.chars().take(60).collect();
    let words: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
    let near = similar(word, Kind::ALL.iter().map(|kind| kind.as_str()));
    let help = near.map_or_else(
        || {
            format!(
                "the kinds are: {}; a file for something else is listed under `ignore` in the fleet file",
                words.join(", ")
            )
        },
        |near| format!("did you mean `{near}`?"),
    );
    let diagnostic =
        findings.at(codes::UNKNOWN_KIND, *span, format!("there is no kind `{shown}`")).label("unknown kind").help(help);
    findings.push(diagnostic);
}

/// Looks for what else is wrong in an object that cannot be kept.
pub(super) fn nameless(kind: Kind, object: &Object, keys: Keys, findings: &mut Findings<'_>) {
    let Ok(name) = Name::new("nameless") else { return };
    let fields = Fields::new(kind.as_str(), object.span, &object.fields);
    let mut subject = Subject { name, at: findings.place(object.span), fields };
    typed(kind, &mut subject, keys, findings);
}
