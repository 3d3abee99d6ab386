//! Two specs in, everything that the daemon does out.

use super::{Effect, EffectAction, EffectClass, Effects};
use crate::spec::NodeSpec;

/// What happens to a host that is as `before` says when it is told to be as `after` says.
#[must_use]
pub fn classify(before: &NodeSpec, after: &NodeSpec) -> Effects {
    if before == after {
        return Effects::default();
    }
    Effects::new(vec![Effect {
        class: EffectClass::Live,
        subject: "spec".to_owned(),
        action: EffectAction::Set,
        cause: None,
    }])
}
