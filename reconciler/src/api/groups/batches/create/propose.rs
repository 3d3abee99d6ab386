//! Where people approve, a batch is a signed commit. What is asked for is judged as it will be once that commit is there, and written
//! down with the file; whoever follows the fleet signs and pushes it, and says in the batch what is in the way.

use pki::trust::object::ObjectId;
use schema::{name::Name, time::Timestamp};
use serde_json::{Map, Value};
use store::{
    Txn,
    batches::{self, NewBatch, NewLeaf, Origin, Put, proposals},
    poke::Poke,
};

use super::{Asked, Create, USUAL, fresh, used, window};
use crate::{
    api::{ApiError, App, Code, groups, groups::batches::BatchView},
    batch::{
        proposal::{self, Hindered, Wish, Written},
        resolve::{self, Trust, resolve},
    },
    source::FLEET,
};

/// What stands for a commit that does not exist yet: everything but the digest of the batch can be judged without one.
const NO_COMMIT: ObjectId = ObjectId::Sha1([0; 20]);

pub(super) async fn propose(app: &App, txn: &mut Txn, input: &Create, asked: Asked) -> Result<BatchView, ApiError> {
    let name = asked.name.clone();
    if batches::find_for_update(txn, name.as_str()).await?.is_some() {
        return Err(used(&name));
    }
    let trust = super::super::trust(app).await?.filter(|trust| trust.present().is_some());
    let Some(trust) = trust else {
        return Err(ApiError::new(Code::Unavailable, "the trust policy is not known here yet; try again")
            .why("batch-policy: better-compute status says what the fleet repository waits for"));
    };
    let service = app.service.as_ref().ok_or_else(|| {
        ApiError::new(Code::Unsupported, "this process has no keys, and so asks for no proposal")
            .why("service-key-missing: ask a process that has the role api and the control plane's keys")
    })?;
    let written = write(input, &asked, &trust)?;
    let path = proposal::path(&name);
    let keys = service.service();
    let (_, principal) = proposal::speaker(&keys, &trust, &path).map_err(|hindered| unsaid(&hindered, &written))?;
    let (new, leaves) = judge(txn, &asked, &written, &trust, &principal).await?;
    let message = "its commit is about to be signed and pushed";
    let Put::Fresh(id) = batches::put(txn, &new, &leaves, Some(message)).await? else { return Err(used(&name)) };
    let seal = keys.seal(service.realm()).ok_or_else(|| ApiError::internal("a key that speaks makes marks"))?;
    let mark = seal.tag(&proposals::words(id, &name, &new.created_by, &written.text));
    proposals::ask(txn, id, &written.text, &mark).await?;
    txn.poke(Poke::Source(FLEET.to_owned()));
    fresh(txn, &new, leaves.len()).await
}

/// The file that asks for it.
fn write(input: &Create, asked: &Asked, trust: &Trust) -> Result<Written, ApiError> {
    let first = input.scope[0].payload.clone().unwrap_or(Value::Null);
    if let Some(at) = input.scope.iter().position(|member| member.payload.clone().unwrap_or(Value::Null) != first) {
        let message = "people approve one text for all machines of a batch; ask for another batch";
        return Err(ApiError::field(format!("scope[{at}].payload"), message));
    }
    let proposer: Option<Name> = input.proposer.as_deref().map(|name| groups::parse("proposer", name)).transpose()?;
    let policy = trust.present();
    if let Some(who) =
        proposer.as_ref().filter(|who| !policy.is_some_and(|policy| policy.principals().contains_key(*who)))
    {
        return Err(ApiError::field("proposer", format!("the trust policy names no principal {who}")));
    }
    let longest = policy.and_then(|policy| policy.tier_of(asked.kind.as_str())).map(|tier| tier.max_ttl.as_secs());
    let usual = longest.and_then(|longest| u32::try_from(longest).ok()).map_or(USUAL, |longest| longest.min(USUAL));
    let (_, expires) = window(input, asked.now, usual);
    let second = |at: Timestamp| Timestamp::from_second(at.as_second()).unwrap_or(at);
    let wish = Wish {
        name: &asked.name,
        command: asked.kind.as_str(),
        payload: match first {
            Value::Object(members) => members,
            _ => Map::new(),
        },
        nodes: asked.leaves.iter().map(|leaf| &leaf.node).collect(),
        reason: &asked.why,
        proposer: proposer.as_ref(),
        not_before: input.not_before.map(second),
        expires: second(expires),
        max_in_flight: input.max_in_flight,
        max_failures: input.max_failures,
        spread: input.spread.as_deref(),
    };
    proposal::write(&wish).map_err(|why| {
        ApiError::new(Code::InvalidInput, format!("a document cannot say that: {why}"))
            .why("people approve a document of the fleet repository; docs/reference/language.md says what one can hold")
    })
}

/// The batch as it will be, but for its commit, when something can come of it.
async fn judge(
    txn: &mut Txn,
    asked: &Asked,
    written: &Written,
    trust: &Trust,
    principal: &Name,
) -> Result<(NewBatch, Vec<NewLeaf>), ApiError> {
    let machines = batches::machines(txn).await?.items;
    let wanted = resolve::Asked {
        batch: &written.batch,
        doc: written.doc.clone(),
        origin: Origin::Proposal,
        plan: Some((NO_COMMIT, NO_COMMIT)),
        excluded: [principal.clone()].into(),
        proposer: Some(principal.clone()),
        created_by: &asked.owner,
    };
    let resolved = resolve(&wanted, &machines, Some(trust), asked.now);
    if let Some((code, why)) = resolved.flaw {
        return Err(ApiError::new(Code::InvalidState, format!("nothing can come of batch/{}: {why}", asked.name))
            .why(format!("{code}: better-compute why {code}")));
    }
    if let Some((node, why)) = resolved.left_out.first() {
        return Err(ApiError::new(Code::InvalidState, format!("node/{node} cannot take part: {why}"))
            .why("leave it out, or wait until it has reported"));
    }
    let new = NewBatch { plan: None, signed: None, place: None, ..resolved.batch };
    let leaves = resolved.leaves.into_iter().map(|leaf| NewLeaf { leaf: None, ..leaf }).collect();
    Ok((new, leaves))
}

/// The control plane may not propose it, and somebody else may.
fn unsaid(hindered: &Hindered, written: &Written) -> ApiError {
    ApiError::new(Code::Unsupported, hindered.why.clone()).why(format!(
        "{}: people approve batches of this fleet, and what they approve is a signed commit. Or commit it yourself (docs/guides/approvals.md):\n{}",
        hindered.by.code(),
        written.text
    ))
}
