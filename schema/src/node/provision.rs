//! The provision axis: how far a machine is from unknown to usable.
//!
//! ```text
//! a server that already runs      adopting ──▶ adopted ──▶ adopting, when it comes back as a new identity
//! a bare-metal server             enrolling ─▶ inspecting ─▶ commissioning ─▶ ready ─▶ deploying ─▶ deployed
//!                                                                              ▲                      │  ▲
//!                                                                              └───── releasing ◀─────┘  └▶ rescue
//! every state in which work is done ──▶ failed ──▶ back to where it failed
//! every resting state ──▶ retiring ──▶ retired
//! ```

use super::words;

words! {
    /// How far a machine is from unknown to usable.
    ProvisionState {
        /// Joined; its acceptance has not passed yet.
        Adopting = "adopting",
        /// Accepted as it is; receives desired state.
        Adopted = "adopted",
        /// Known by its BMC only.
        Enrolling = "enrolling",
        /// Its hardware is being read.
        Inspecting = "inspecting",
        /// Being tested and wiped.
        Commissioning = "commissioning",
        /// Clean and idle.
        Ready = "ready",
        /// An image is being put on it.
        Deploying = "deploying",
        /// Runs a deployed image; receives desired state.
        Deployed = "deployed",
        /// Being wiped for the next user.
        Releasing = "releasing",
        /// Started from a rescue image.
        Rescue = "rescue",
        /// Work on it failed; maintenance is on and `failed_from` says where.
        Failed = "failed",
        /// On its way out.
        Retiring = "retiring",
        /// Out. Final.
        Retired = "retired",
    }
}

words! {
    /// What moves a machine along the provision axis.
    ProvisionEvent {
        /// Acceptance passed, or a person adopted the machine.
        Adopt = "adopt",
        /// Enrolment is done; read the hardware.
        Inspect = "inspect",
        /// The hardware is known; test and wipe.
        Commission = "commission",
        /// Tests and wipe passed, or a release finished.
        BecomeReady = "become-ready",
        /// The machine came back as a new identity: what was known of its disk counts no more.
        Rejoin = "rejoin",
        /// Put an image on it.
        Deploy = "deploy",
        /// The image runs.
        Deployed = "deployed",
        /// The user is done.
        Release = "release",
        /// Start the rescue image.
        Rescue = "rescue",
        /// Leave the rescue image.
        Unrescue = "unrescue",
        /// The work of this state failed.
        Fail = "fail",
        /// Try again from where it failed.
        Recover = "recover",
        /// Take it out.
        Retire = "retire",
        /// It is out.
        Retired = "retired",
    }
}

/// A move that the table does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a machine that is {from} cannot {event}")]
pub struct IllegalMove {
    /// Where the machine is.
    pub from: ProvisionState,
    /// What was asked.
    pub event: ProvisionEvent,
}

/// The outcome of a move: the new state, and where it failed when that is what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// The new state.
    pub to: ProvisionState,
    /// Set when `to` is failed. The writer turns maintenance on with it.
    pub failed_from: Option<ProvisionState>,
}

impl ProvisionState {
    /// Whether desired state applies: adopted or deployed.
    #[must_use]
    pub const fn receives_spec(self) -> bool {
        matches!(self, Self::Adopted | Self::Deployed)
    }

    /// Where `event` leads. `failed_from` is what was recorded when the machine failed.
    ///
    /// # Errors
    /// [`IllegalMove`] for every pair that the table above does not have.
    pub fn transition(self, event: ProvisionEvent, failed_from: Option<Self>) -> Result<Moved, IllegalMove> {
        use ProvisionEvent as E;
        let to = match (self, event) {
            (Self::Adopting, E::Adopt) => Self::Adopted,
            (Self::Adopting | Self::Adopted, E::Rejoin) => Self::Adopting,
            (Self::Failed, E::Rejoin) if failed_from == Some(Self::Adopting) => Self::Adopting,
            (Self::Enrolling, E::Inspect) => Self::Inspecting,
            (Self::Inspecting, E::Commission) => Self::Commissioning,
            (Self::Commissioning | Self::Releasing, E::BecomeReady) => Self::Ready,
            (Self::Ready, E::Deploy) => Self::Deploying,
            (Self::Deploying, E::Deployed) | (Self::Rescue, E::Unrescue) => Self::Deployed,
            (Self::Deployed, E::Rescue) => Self::Rescue,
            (Self::Deployed | Self::Rescue, E::Release) => Self::Releasing,
            (Self::Failed, E::Recover) => failed_from.ok_or(IllegalMove { from: self, event })?,
            (Self::Adopting | Self::Adopted | Self::Ready | Self::Deployed | Self::Failed, E::Retire) => Self::Retiring,
            (Self::Retiring, E::Retired) => Self::Retired,
            (
                Self::Adopting
                | Self::Enrolling
                | Self::Inspecting
                | Self::Commissioning
                | Self::Deploying
                | Self::Releasing
                | Self::Rescue
                | Self::Retiring,
                E::Fail,
            ) => return Ok(Moved { to: Self::Failed, failed_from: Some(self) }),
            (from, event) => return Err(IllegalMove { from, event }),
        };
        Ok(Moved { to, failed_from: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retired_is_final() {
        for event in ProvisionEvent::ALL {
            assert!(ProvisionState::Retired.transition(*event, None).is_err(), "{event}");
        }
    }

    #[test]
    fn a_failed_machine_recovers_to_where_it_failed() {
        for state in ProvisionState::ALL {
            if let Ok(moved) = state.transition(ProvisionEvent::Fail, None) {
                assert_eq!(moved, Moved { to: ProvisionState::Failed, failed_from: Some(*state) });
                let back = ProvisionState::Failed.transition(ProvisionEvent::Recover, moved.failed_from);
                assert_eq!(back.map(|moved| moved.to), Ok(*state));
            }
        }
    }

    #[test]
    fn every_state_but_the_last_has_a_way_on() {
        for state in ProvisionState::ALL.iter().filter(|state| **state != ProvisionState::Retired) {
            let ways = ProvisionEvent::ALL
                .iter()
                .filter(|event| state.transition(**event, Some(ProvisionState::Adopting)).is_ok());
            assert!(ways.count() > 0, "{state}");
        }
    }
}
