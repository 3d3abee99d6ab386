//! Whether people allow a destructive command: asked before a worker signs it, of the bytes that go with it, as its machine will
//! ask. Rows of the database say what is queued and never what is allowed.

use pki::batch::{Approval, Me, Trusted, emergencies, permit};
use schema::{command::CommandBody, time::Timestamp};
use store::{
    Db, DbError,
    batches::{self, Batch, Machine},
};

use super::resolve::{Trust, UNVOUCHED, facts, hardware_key};

/// Says why a command is not to be signed; `None` when it is. What does no harm needs nobody.
///
/// # Errors
/// When PostgreSQL does not answer.
pub async fn withheld(
    db: &Db,
    trust: &Trust,
    body: &[u8],
    approval: Option<&[u8]>,
    now: Timestamp,
) -> Result<Option<String>, DbError> {
    let Ok(body) = CommandBody::read(body) else { return Ok(Some("its body cannot be read".to_owned())) };
    if !body.kind.row().destructive {
        return Ok(None);
    }
    let Some(policy) = trust.present() else {
        return Ok(Some("the trust policy is not known here yet".to_owned()));
    };
    let Some(approval) = approval else {
        let allowed = policy.unbatched_destructive_per_hour() > 0 && body.batch.is_none();
        return Ok((!allowed).then(|| "nobody approved it".to_owned()));
    };
    let Ok(approval) = Approval::read(approval) else { return Ok(Some("its approval cannot be read".to_owned())) };
    let mut txn = db.snapshot().await?;
    let machine = batches::machine_of(&mut txn, body.node_id).await?;
    let Some(machine) = machine else { return Ok(Some("its machine is gone".to_owned())) };
    if !machine.vouched {
        return Ok(Some(format!("its machine goes nowhere: {UNVOUCHED}")));
    }
    Ok(asked(trust, policy, &body, &approval, &machine, now))
}

fn asked(
    trust: &Trust,
    policy: &pki::trust::policy::Policy,
    body: &CommandBody,
    approval: &Approval,
    machine: &Machine,
    now: Timestamp,
) -> Option<String> {
    let Some(journal) = machine.journal else { return Some("its machine has not reported yet".to_owned()) };
    let (hardware_key, facts) = (hardware_key(machine.hardware_key), facts(machine));
    let me = Me {
        name: machine.name.as_str(),
        node: machine.id,
        identity_generation: machine.identity,
        hardware_key: &hardware_key,
        journal,
        facts: &facts,
    };
    let trusted = Trusted { trust_domain: &trust.trust_domain, fleet: trust.fleet, policy, revoked: &trust.revoked };
    permit(body, approval, &me, &trusted, now).err().map(|denied| denied.to_string())
}

/// Whether enough people called the emergency that a stored batch says it is.
pub(super) fn is_called(trust: &Trust, batch: &Batch, machines: &[String], now: Timestamp) -> bool {
    let Some(policy) = trust.present() else { return false };
    let Some(Ok(Approval::Breakglass(approval))) = batch.new.evidence.as_deref().map(Approval::read) else {
        return false;
    };
    let (called, _) = emergencies(&approval.statements, &trust.trust_domain, trust.fleet, policy, &trust.revoked);
    called.iter().any(|emergency| {
        emergency.permits(now) && machines.iter().all(|machine| emergency.covers(machine, &batch.new.kind))
    })
}
