//! Contributors: who says what of a spec, in the order of registration.
//!
//! Each returns a part; a section belongs to one contributor. Bookings, instances and the rest add theirs here.

use schema::{
    fleet::Composed,
    spec::{NodeSpec, Section},
};
use store::nodes::Node;

/// What a contributor reads.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The node.
    pub node: &'a Node,
    /// What its assigned target and its own words make.
    pub composed: &'a Composed,
}

/// Says one section of a spec.
#[derive(Debug, Clone, Copy)]
pub struct Contributor {
    /// The section.
    pub section: Section,
    /// What it says.
    pub contribute: fn(&Input<'_>) -> NodeSpec,
}

/// What the host looks like, from the assigned target.
pub(super) const HOST: Contributor = Contributor {
    section: Section::Host,
    contribute: |input| NodeSpec { host: input.composed.host.clone(), ..NodeSpec::default() },
};

/// Break-glass access, from the assigned target.
pub(super) const ACCESS: Contributor = Contributor {
    section: Section::Access,
    contribute: |input| NodeSpec { access: input.composed.access.clone(), ..NodeSpec::default() },
};

/// Puts the parts together.
pub(super) fn merge(contributors: &[Contributor], input: &Input<'_>) -> NodeSpec {
    contributors.iter().fold(NodeSpec::default(), |mut spec, contributor| {
        let part = (contributor.contribute)(input);
        match contributor.section {
            Section::Host => spec.host = part.host,
            Section::Access => spec.access = part.access,
        }
        spec
    })
}
