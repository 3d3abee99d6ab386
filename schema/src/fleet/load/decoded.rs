//! Decoding one object by itself: a pure function of its file's path and text, so it is done side by side, once for
//! each text, and kept with the file.

use std::sync::Arc;

use crate::{
    diagnostic::{Diagnostic, SourceRef, codes, shown},
    fleet::{
        ApiAccess, Batch, FleetDocument, Freeze, Image, Located, Moved, Node, Pool, Profile, Quota, Release, Removed,
        Rollout, Site, Tenant,
        check::claims,
        decode::{Fields, Findings, Subject, mended_name, name_of},
        doc::{Object, Scalar},
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
    /// Something whose kind or name is wrong.
    Perhaps(Perhaps),
    Moved(Moved),
    Removed(Removed),
    /// An object, with its model when nothing is wrong with it.
    Object {
        address: ObjectRef,
        at: SourceRef,
        model: Option<(Typed, Arc<Made>)>,
        /// What could be read of it when something is wrong with it.
        part: Option<Typed>,
    },
}

/// What an object may be whose kind or name is wrong: a reference to that is not a second error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::fleet) struct Perhaps {
    kind: Option<Kind>,
    name: Option<Name>,
}

impl Perhaps {
    /// What nobody looked at.
    pub(super) const fn anything() -> Self {
        Self { kind: None, name: None }
    }

    /// Whether it may be of a kind.
    pub(in crate::fleet) fn may_be_a(&self, kind: Kind) -> bool {
        self.kind.is_none_or(|own| own == kind)
    }

    /// Whether it may be an object.
    pub(in crate::fleet) fn may_be(&self, address: &ObjectRef) -> bool {
        self.may_be_a(address.kind) && self.name.as_ref().is_none_or(|own| *own == address.name)
    }
}

/// Defines [`Typed`] and what is done with each kind of it.
macro_rules! typed {
    ($($kind:ident: $model:ty, $module:ident;)*) => {
        /// The model of an object.
        #[derive(Debug)]
        pub(super) enum Typed {
            /// There may be many of these, and they are shared. What it claims a machine by is beside it.
            Node(Arc<Node>, Box<[u64]>),
            $($kind(Box<$model>),)*
        }

        /// Reads an object's keys. Its document is made when it decodes without an error of its own.
        fn typed(kind: Kind, subject: &mut Subject<'_>, keys: Keys, findings: &mut Findings<'_>) -> Option<(Typed, Option<Arc<Made>>)> {
            let before = findings.errors();
            match kind {
                Kind::Node => {
                    let model = kind::node::decode(subject, findings);
                    subject.fields.finish(findings);
                    let model = model?;
                    let right = findings.errors() == before;
                    let made = right.then(|| made(kind, &model.name, &model, &model.at, keys));
                    let claims = claims(&model);
                    Some((Typed::Node(Arc::new(model), claims), made))
                }
                $(Kind::$kind => {
                    let model = kind::$module::decode(subject, findings);
                    subject.fields.finish(findings);
                    let model = model?;
                    let right = findings.errors() == before;
                    let made = right.then(|| made(kind, &model.name, &model, &model.at, keys));
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
        return unknown(object, keys, findings);
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
        return What::Perhaps(Perhaps { kind: Some(kind), name: meant(object) });
    };
    let at = findings.place(object.name.as_ref().map_or(*span, |name| name.span));
    let address = ObjectRef::new(kind, name.clone());
    let fields = Fields::new(kind.as_str(), object.span, &object.fields);
    let mut subject = Subject { name, at: at.clone(), fields };
    let (model, part) = match typed(kind, &mut subject, keys, findings) {
        Some((typed, Some(made))) => (Some((typed, made)), None),
        Some((typed, None)) => (None, Some(typed)),
        None => (None, None),
    };
    What::Object { address, at, model, part }
}

/// The name that an object has or was probably meant to have.
fn meant(object: &Object) -> Option<Name> {
    match &object.name.as_ref()?.value {
        Scalar::Text(text) => mended_name(text),
        _ => None,
    }
}

/// Reports a kind that does not exist, and what else is wrong in the object where its kind can be guessed.
fn unknown(object: &Object, keys: Keys, findings: &mut Findings<'_>) -> What {
    let (word, span) = &object.kind;
    let shown = shown(word);
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
    let kind = near.and_then(|near| near.parse().ok());
    if let Some(kind) = kind {
        let mut inner = Vec::new();
        let mut within = Findings::new(Arc::clone(&findings.file), findings.text, &mut inner);
        nameless(kind, object, keys, &mut within);
        let refers = within.refers;
        // With keys of another kind it is probably not what it looks like.
        if !inner.iter().any(|found| found.code == codes::UNKNOWN_KEY) {
            findings.refers.extend(refers);
            inner.into_iter().for_each(|found| findings.push(found));
        }
    }
    let name = meant(object);
    if kind.is_none() && name.is_none() { What::Nothing } else { What::Perhaps(Perhaps { kind, name }) }
}

/// Looks for what else is wrong in an object that cannot be kept.
pub(super) fn nameless(kind: Kind, object: &Object, keys: Keys, findings: &mut Findings<'_>) {
    let Ok(name) = Name::new("nameless") else { return };
    let fields = Fields::new(kind.as_str(), object.span, &object.fields);
    let mut subject = Subject { name, at: findings.place(object.span), fields };
    typed(kind, &mut subject, keys, findings);
}
