//! The one table of command kinds. The queue, the gateway, the daemon, the docs and `better-compute kinds` read it.

use schemars::{JsonSchema, Schema};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{Lane, payload, payload::PayloadError, result};
use crate::{
    node::{Role, words},
    time::Duration,
};

words! {
    /// What a command does.
    CommandKind {
        /// Reads the machine again and sends what changed.
        InventoryRefresh = "inventory.refresh",
        /// Checks the GPUs through the driver's management interface.
        DiagNvml = "diag.nvml",
        /// Checks the GPUs with DCGM.
        DiagDcgm = "diag.dcgm",
        /// Collects the journal and the daemon's own files.
        LogsCollect = "logs.collect",
        /// Reboots the machine.
        NodeReboot = "node.reboot",
        /// Resets GPUs that nobody uses.
        GpuReset = "gpu.reset",
        /// Puts another version of the daemon in place.
        DaemonUpgrade = "daemon.upgrade",
    }
}

/// One kind, as everybody has to treat it.
#[derive(Debug)]
pub struct KindRow {
    /// Which kind.
    pub kind: CommandKind,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// What it shares its workers with.
    pub lane: Lane,
    /// It harms what runs on the machine, and needs the quorum.
    pub destructive: bool,
    /// Running it twice does no more than running it once.
    pub retry_safe: bool,
    /// It ends the daemon that runs it. When it is not safe to run again, a new boot on rejoin says that it succeeded; else the
    /// daemon that is back says it.
    pub self_terminating: bool,
    /// Somebody acts on its result: the node's signature stays with it as evidence.
    pub attested: bool,
    /// `commands.run` takes it. Other kinds are queued by the control plane itself.
    pub by_run: bool,
    /// How long it may take from its deadline on. For a self-terminating kind this covers the way back.
    pub timeout: Duration,
    /// The roles of machines that run it.
    pub roles: &'static [Role],
    /// What it is told.
    pub payload: Document,
    /// Members of the payload that the control plane alone fills in. They may hold a key to a place, and nobody is shown them.
    pub minted: &'static [&'static str],
    /// What it answers when it ran.
    pub result: Document,
}

/// The type behind a document.
#[derive(Debug)]
pub struct Document {
    schema: fn() -> Schema,
    check: fn(&Value) -> Result<Value, PayloadError>,
}

impl Document {
    const fn of<T: JsonSchema + DeserializeOwned + Serialize>() -> Self {
        Self { schema: schema_of::<T>, check: payload::check::<T> }
    }

    /// Its JSON Schema.
    #[must_use]
    pub fn schema(&self) -> Schema {
        (self.schema)()
    }

    /// The value with its defaults filled in and its members in their canonical order.
    ///
    /// # Errors
    /// With the place that does not fit and what belongs there.
    pub fn check(&self, value: &Value) -> Result<Value, PayloadError> {
        (self.check)(value)
    }
}

fn schema_of<T: JsonSchema>() -> Schema {
    schemars::generate::SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator()
        .into_root_schema_for::<T>()
}

const ALL_ROLES: &[Role] = Role::ALL;
const WITH_GPUS: &[Role] = &[Role::Host, Role::Dedicated, Role::Unassigned];

const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

/// Every kind, in the order of [`CommandKind::ALL`].
pub static KINDS: [KindRow; CommandKind::ALL.len()] = [
    KindRow {
        kind: CommandKind::InventoryRefresh,
        summary: "Reads the machine again and sends the sections of its inventory that changed.",
        lane: Lane::Control,
        destructive: false,
        retry_safe: true,
        self_terminating: false,
        attested: false,
        by_run: true,
        timeout: minutes(5),
        roles: ALL_ROLES,
        payload: Document::of::<payload::InventoryRefresh>(),
        minted: &[],
        result: Document::of::<result::InventoryRefreshed>(),
    },
    KindRow {
        kind: CommandKind::DiagNvml,
        summary: "Checks the GPUs through the driver's management interface: there, counted, and without a pending fault.",
        lane: Lane::Provision,
        destructive: false,
        retry_safe: true,
        self_terminating: false,
        attested: true,
        by_run: true,
        timeout: minutes(5),
        roles: WITH_GPUS,
        payload: Document::of::<payload::DiagNvml>(),
        minted: &[],
        result: Document::of::<result::Diagnosis>(),
    },
    KindRow {
        kind: CommandKind::DiagDcgm,
        summary: "Checks the GPUs with DCGM; from level 2 on it puts load on them.",
        lane: Lane::Provision,
        destructive: false,
        retry_safe: true,
        self_terminating: false,
        attested: true,
        by_run: false,
        timeout: minutes(120),
        roles: WITH_GPUS,
        payload: Document::of::<payload::DiagDcgm>(),
        minted: &[],
        result: Document::of::<result::Diagnosis>(),
    },
    KindRow {
        kind: CommandKind::LogsCollect,
        summary: "Collects the system journal, the kernel's log and the daemon's own state into one bundle.",
        lane: Lane::Bulk,
        destructive: false,
        retry_safe: true,
        self_terminating: false,
        attested: false,
        by_run: true,
        timeout: minutes(30),
        roles: ALL_ROLES,
        payload: Document::of::<payload::LogsCollect>(),
        minted: &["upload"],
        result: Document::of::<result::LogBundle>(),
    },
    KindRow {
        kind: CommandKind::NodeReboot,
        summary: "Reboots the machine. It succeeds when the node is back with a new boot.",
        lane: Lane::Control,
        destructive: true,
        retry_safe: false,
        self_terminating: true,
        attested: false,
        by_run: true,
        timeout: minutes(30),
        roles: ALL_ROLES,
        payload: Document::of::<payload::NodeReboot>(),
        minted: &[],
        result: Document::of::<result::Rebooted>(),
    },
    KindRow {
        kind: CommandKind::GpuReset,
        summary: "Resets GPUs, and refuses all of them while one is in use.",
        lane: Lane::Provision,
        destructive: true,
        retry_safe: false,
        self_terminating: false,
        attested: true,
        by_run: false,
        timeout: minutes(15),
        roles: WITH_GPUS,
        payload: Document::of::<payload::GpuReset>(),
        minted: &[],
        result: Document::of::<result::GpuResets>(),
    },
    KindRow {
        kind: CommandKind::DaemonUpgrade,
        summary: "Takes another version of the daemon, when enough of those signed it whom the trust policy names. This version checks that and puts none in place.",
        lane: Lane::Provision,
        destructive: false,
        retry_safe: true,
        self_terminating: true,
        attested: false,
        by_run: false,
        timeout: minutes(15),
        roles: ALL_ROLES,
        payload: Document::of::<payload::DaemonUpgrade>(),
        minted: &[],
        result: Document::of::<result::DaemonUpgraded>(),
    },
];

/// How long a command of a kind that is no longer known may take.
pub const UNKNOWN_KIND_TIMEOUT: Duration = minutes(15);

impl CommandKind {
    /// How everybody has to treat it.
    #[must_use]
    pub fn row(self) -> &'static KindRow {
        &KINDS[self as usize]
    }

    /// The payload with its defaults filled in: what belongs in a [`super::CommandBody`].
    ///
    /// # Errors
    /// With the place that does not fit and what belongs there.
    pub fn check_payload(self, payload: &Value) -> Result<Value, PayloadError> {
        self.row().payload.check(payload)
    }

    /// Whether a caller may say this payload: it says nothing that the control plane alone fills in.
    ///
    /// # Errors
    /// With the member that is not the caller's.
    pub fn check_callers(self, payload: &Value) -> Result<(), PayloadError> {
        let said = self.row().minted.iter().find(|member| payload.get(**member).is_some_and(|value| !value.is_null()));
        said.map_or(Ok(()), |member| {
            Err(PayloadError {
                path: (*member).to_owned(),
                expected: "the control plane alone fills this in".to_owned(),
            })
        })
    }

    /// The payload as it may be shown.
    #[must_use]
    pub fn shown(self, payload: &Value) -> Value {
        let mut shown = payload.clone();
        if let Some(members) = shown.as_object_mut() {
            members.retain(|name, _| !self.row().minted.contains(&name.as_str()));
        }
        shown
    }

    /// The kinds that `commands.run` takes.
    pub fn by_run() -> impl Iterator<Item = Self> {
        KINDS.iter().filter(|row| row.by_run).map(|row| row.kind)
    }
}
