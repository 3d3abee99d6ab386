//! How a loop begins: with what is on disk, and with what outlived the loop before it.

use std::{sync::Arc, time::Instant};

use pki::verify::NodeIdentity;
use schema::cause::chain;
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    Agent, AgentError, Backoff, Config, Converger, DRIFT_EVERY, FIRST_LOOK, Hands, INVENTORY_EVERY, LinkEvent, Side,
    chance,
};
use crate::{
    hardware,
    policies::Policies,
    session::{Core, Me},
    state::{Contact, StateDir, StateError},
};

impl Agent {
    pub(super) fn begin(
        config: Config,
        may_be_old: bool,
        hands: &mut Option<Hands>,
        link_events: mpsc::Sender<LinkEvent>,
        sides: mpsc::Sender<Side>,
    ) -> Result<Self, AgentError> {
        let state = StateDir::open(&config.state)?;
        let lock = state.lock()?;
        let not_joined = || AgentError::NotJoined(config.state.clone());
        let identity = state.identity()?.ok_or_else(not_joined)?;
        let key = Arc::new(state.key()?.ok_or_else(not_joined)?);
        let trust = state.trust()?.ok_or_else(not_joined)?;
        let boot_id = hardware::boot_id(&config.root, config.hardware.is_described());
        let kept = state.progress()?.ok_or_else(not_joined)?;
        let desired = state.desired()?;
        if identity.described != config.hardware.is_described() {
            return Err(AgentError::OtherHardware { described: identity.described });
        }
        let joined = || identity.endpoints.iter().filter_map(|text| text.parse().ok()).collect();
        let endpoints = if config.gateways.is_empty() { joined() } else { config.gateways.clone() };
        if endpoints.is_empty() {
            return Err(AgentError::Identity("it names no address".to_owned()));
        }
        let certificate = NodeIdentity::of_own(&trust.realm().trust_domain, &identity.certificates())
            .map_err(|error| AgentError::Identity(error.to_string()))?;
        let converger = Converger::open(&config.root, &state, boot_id)
            .map_err(|source| AgentError::Root { path: config.root.clone(), source })?;
        let converger = if config.hardware.is_described() { converger.of_described(&config.root) } else { converger };
        let me = Me {
            node_id: identity.identity.node_id,
            realm: trust.realm(),
            key: Arc::clone(&key),
            boot_id,
            described: identity.described,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        tracing::info!("this is {} ({})", identity.identity.node_name, me.node_id);
        let mut hands = match hands.take() {
            Some(hands) => hands,
            None => Hands::open(&config, &state, &me, &kept)?,
        };
        let progress = kept.clone().of(boot_id, hands.journal_id());
        // On a full disk the machine connects all the same, so that it can say so; it reports nothing that it could not number.
        let keeping = if progress == kept { Ok(()) } else { state.keep_progress(&progress) };
        let cannot_keep = match keeping {
            Ok(()) => String::new(),
            Err(error @ StateError::Io { .. }) => chain(&error),
            Err(error) => return Err(error.into()),
        };
        let clock = Arc::clone(&hands.clerk.clock);
        let desk = hands.desk().accepting(identity.identity.kinds.as_deref());
        // What the loop before this one took is believed also where a full disk did not keep it.
        let known = desk.gate().guard();
        let policies = known.policies.as_deref().cloned().or(state.policies_of(&identity)?);
        let floor = known.floor.max(state.floor()?);
        desk.gate().change(|guard| {
            guard.name.clone_from(&identity.identity.node_name);
            guard.identity_generation = identity.identity.identity_generation;
            guard.certified = Some(certificate.not_before);
        });
        if let Some(why) = policies.as_ref().and_then(Policies::halted) {
            tracing::error!("nothing destructive is done on this machine: {why}");
        }
        let contact = Contact { session: None, ..state.contact() };
        let now = Instant::now();
        let mut agent = Self {
            core: Core::new(me, trust, desired.as_ref(), progress, desk)
                .may_be_old(may_be_old)
                .believing(policies, floor),
            hands,
            config,
            state,
            _lock: lock,
            identity,
            endpoints,
            certificate,
            key,
            clock,
            desired: desired.map(Arc::new),
            converger: Some(converger),
            pass_wanted: None,
            asking: false,
            ask_at: None,
            asks: Backoff::default(),
            reading: false,
            renewing: false,
            renewal_began: None,
            refused_renewal: String::new(),
            contact,
            left_open: None,
            link: None,
            links: 0,
            unkept_at: None,
            unkept_said: false,
            attempts: 0,
            backoff: Backoff::default(),
            opened_at: None,
            connect_at: Some(now + FIRST_LOOK),
            drift_at: now + DRIFT_EVERY.mul_f64(chance(0.9, 1.1)),
            inventory_at: now + INVENTORY_EVERY,
            renew_at: now,
            until: None,
            tasks: JoinSet::new(),
            link_events,
            sides,
        };
        if !cannot_keep.is_empty() {
            agent.unkept(cannot_keep);
        }
        agent.plan_renewal();
        Ok(agent)
    }
}
