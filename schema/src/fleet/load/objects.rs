//! Decoding every object of every file, and noticing those that are defined twice.

use std::{collections::BTreeMap, sync::Arc};

use super::ParsedFile;
use crate::{
    diagnostic::{Diagnostic, SourceRef, codes},
    fleet::{
        ApiAccess, Batch, FleetDocument, Freeze, Image, Moved, Node, Pool, Profile, Quota, Release, Removed, Rollout,
        Site, Tenant,
        decode::{Fields, Findings, Subject, name_of},
        doc::Object,
        kind,
        places::Places,
        suggest::similar,
    },
    name::Name,
    object::{Kind, ObjectRef},
};

/// The objects of a tree. What could not be decoded is missing from its kind and present in `defined`, so that a
/// reference to it is not a second error.
#[derive(Debug, Default)]
pub(in crate::fleet) struct Objects {
    pub(in crate::fleet) fleet: Option<FleetDocument>,
    pub(in crate::fleet) sites: BTreeMap<Name, Site>,
    pub(in crate::fleet) pools: BTreeMap<Name, Pool>,
    pub(in crate::fleet) profiles: BTreeMap<Name, Profile>,
    pub(in crate::fleet) images: BTreeMap<Name, Image>,
    pub(in crate::fleet) rollouts: BTreeMap<Name, Rollout>,
    pub(in crate::fleet) nodes: BTreeMap<Name, Node>,
    pub(in crate::fleet) releases: BTreeMap<Name, Release>,
    pub(in crate::fleet) tenants: BTreeMap<Name, Tenant>,
    pub(in crate::fleet) quotas: BTreeMap<Name, Quota>,
    pub(in crate::fleet) access: BTreeMap<Name, ApiAccess>,
    pub(in crate::fleet) batches: BTreeMap<Name, Batch>,
    pub(in crate::fleet) freezes: BTreeMap<Name, Freeze>,
    pub(in crate::fleet) moved: Vec<Moved>,
    pub(in crate::fleet) removed: Vec<Removed>,
    /// Where every object is defined.
    pub(in crate::fleet) defined: BTreeMap<ObjectRef, SourceRef>,
    /// Where the keys of every object are written.
    pub(in crate::fleet) places: Places,
}

impl Objects {
    /// Decodes every object.
    pub(super) fn decode(files: &[ParsedFile], limit: usize, found: &mut Vec<Diagnostic>) -> Self {
        let mut all = Self::default();
        let mut count = 0;
        for (index, file) in files.iter().enumerate() {
            let mut findings = Findings { file: Arc::clone(&file.path), text: &file.parsed.text, found };
            for object in &file.parsed.objects {
                count += 1;
                if count > limit {
                    let diagnostic = findings.at(
                        codes::TOO_MANY,
                        object.span,
                        format!("a fleet has at most {limit} objects, and this is one more"),
                    );
                    findings.push(diagnostic);
                    return all;
                }
                all.object(object, index == 0, &mut findings);
            }
        }
        if all.fleet.is_none() && files[0].parsed.whole && !all.defined.keys().any(|object| object.kind == Kind::Fleet)
        {
            let at = SourceRef::start_of(Arc::clone(&files[0].path));
            let diagnostic = Diagnostic::new(codes::NO_ROOT, &at, "the fleet file does not say which fleet this is")
                .help("fleet \"acme\" { format 1; trust-domain \"acme.example\" }");
            found.push(diagnostic);
        }
        all
    }

    fn object(&mut self, object: &Object, root: bool, findings: &mut Findings<'_>) {
        let (word, span) = &object.kind;
        let Ok(kind) = word.parse::<Kind>() else {
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
            let diagnostic = findings
                .at(codes::UNKNOWN_KIND, *span, format!("there is no kind `{shown}`"))
                .label("unknown kind")
                .help(help);
            findings.push(diagnostic);
            return;
        };
        match kind {
            Kind::Removed => return self.remove(object, findings),
            Kind::Moved => return self.moved.extend(kind::moved::decode(object, findings)),
            _ => {}
        }
        if kind == Kind::Fleet && !root {
            let diagnostic =
                findings.at(codes::SECOND_ROOT, *span, "`fleet` is said in the fleet file at the root, and only there");
            findings.push(diagnostic);
            return;
        }
        let name = match (&object.name, kind) {
            (None, Kind::Fleet) => Name::new("fleet").ok(),
            _ => name_of(object, findings),
        };
        let Some(name) = name else {
            Self::nameless(kind, object, findings);
            return;
        };
        let span = object.name.as_ref().map_or(*span, |name| name.span);
        let at = findings.place(span);
        let address = ObjectRef::new(kind, name.clone());
        if let Some(first) = self.twice(&address) {
            let diagnostic = findings
                .at(codes::DUPLICATE_OBJECT, span, format!("{address} is defined twice"))
                .label("the second")
                .also(&first, "the first");
            findings.push(diagnostic);
            Self::nameless(kind, object, findings);
            return;
        }
        self.defined.insert(address.clone(), at.clone());
        self.places.remember(address, &object.fields, findings);
        let before = findings.errors();
        let mut subject = Subject { name, at, fields: Fields::new(kind.as_str(), object.span, &object.fields) };
        self.typed(kind, &mut subject, before, findings);
    }

    /// Looks for what else is wrong in an object that cannot be kept.
    fn nameless(kind: Kind, object: &Object, findings: &mut Findings<'_>) {
        let Ok(name) = Name::new("nameless") else { return };
        let fields = Fields::new(kind.as_str(), object.span, &object.fields);
        let mut subject = Subject { name, at: findings.place(object.span), fields };
        let before = findings.errors();
        Self::default().typed(kind, &mut subject, before, findings);
    }

    /// Where an object is defined already; there is one fleet, whatever its name.
    fn twice(&self, address: &ObjectRef) -> Option<SourceRef> {
        if address.kind == Kind::Fleet {
            return self.defined.iter().find(|(other, _)| other.kind == Kind::Fleet).map(|(_, at)| at.clone());
        }
        self.defined.get(address).cloned()
    }

    fn typed(&mut self, kind: Kind, subject: &mut Subject<'_>, before: usize, findings: &mut Findings<'_>) {
        // An object is kept when it decodes without an error of its own.
        macro_rules! keep {
            ($module:ident, $kept:ident) => {{
                let object = kind::$module::decode(subject, findings);
                subject.fields.finish(findings);
                if let Some(object) = object.filter(|_| findings.errors() == before) {
                    self.$kept.insert(object.name.clone(), object);
                }
            }};
        }
        match kind {
            Kind::Fleet => {
                let object = kind::fleet_doc::decode(subject, findings);
                subject.fields.finish(findings);
                self.fleet = object.filter(|_| findings.errors() == before);
            }
            Kind::Site => keep!(site, sites),
            Kind::Pool => keep!(pool, pools),
            Kind::Profile => keep!(profile, profiles),
            Kind::Image => keep!(image, images),
            Kind::Rollout => keep!(rollout, rollouts),
            Kind::Node => keep!(node, nodes),
            Kind::Release => keep!(release, releases),
            Kind::Tenant => keep!(tenant, tenants),
            Kind::Quota => keep!(quota, quotas),
            Kind::Access => keep!(access, access),
            Kind::Batch => keep!(batch, batches),
            Kind::Freeze => keep!(freeze, freezes),
            Kind::Moved | Kind::Removed => {}
        }
    }

    fn remove(&mut self, object: &Object, findings: &mut Findings<'_>) {
        let Some(removed) = kind::removed::decode(object, findings) else { return };
        if let Some(first) = self.removed.iter().find(|other| other.name == removed.name) {
            let diagnostic = findings
                .at(codes::DUPLICATE_OBJECT, removed.at.span, format!("{} is removed twice", removed.name))
                .label("the second")
                .also(&first.at, "the first");
            findings.push(diagnostic);
            return;
        }
        self.removed.push(removed);
    }
}
