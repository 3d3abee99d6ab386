//! Mutations happen once: the change, its idempotency row and its audit row are one transaction.
//!
//! A key is scoped to the caller's identity. The same key with the same request replays the stored answer; with another
//! request it is CONFLICT. Members of an answer that are secrets are not stored, so a replay has `null` there.

use schema::{canonical, digest::Digest};
use serde_json::{Value, json};
use store::{audit, idempotency};
use tokio::sync::Semaphore;

use super::{
    ApiError, App, Code,
    auth::Caller,
    table::{After, Method, Mutation, MutationHandler},
};

const KEY: &str = "idempotencyKey";
const MAX_KEY: usize = 200;

/// Each mutation holds a connection and may need a second one for reads; this keeps the pool from running dry.
static PLACES: Semaphore = Semaphore::const_new(8);

pub(super) async fn once(
    app: &App,
    method: &Method,
    caller: &Caller,
    mut input: Value,
    change: &MutationHandler,
) -> Result<Value, ApiError> {
    let key = take_key(&mut input)?;
    let name = method.full_name();
    let detail = open_part(method, &input);
    let request = digest(&name, &detail, &marks(app, method, &input))?;
    let _place = PLACES.acquire().await.expect("the semaphore is never closed");
    let mut txn = app.db.begin().await?;
    match idempotency::begin(&mut txn, &caller.identity, &key, &name, &request).await? {
        idempotency::Begin::New => {}
        idempotency::Begin::Replay(stored) => return serde_json::from_str(&stored).map_err(ApiError::internal),
        idempotency::Begin::Conflict => {
            return Err(ApiError::new(
                Code::Conflict,
                format!("the idempotency key was used for another request of {name}"),
            )
            .why("a key stands for one request; choose a new one for a new request"));
        }
    }
    let mut after = After::default();
    let answer = change(Mutation { app, txn: &mut txn, caller, key: &key, after: &mut after }, input).await?;
    let mut stored = answer.clone();
    for secret in method.secrets {
        stored[*secret] = Value::Null;
    }
    let subject = subject(&detail, &stored);
    audit::append(&mut txn, &caller.identity, &name, &subject, after.audit.as_ref().unwrap_or(&detail)).await?;
    idempotency::finish(&mut txn, &caller.identity, &key, &stored.to_string()).await?;
    txn.commit().await?;
    if let Some(signer) = &app.signer {
        for command in after.sign {
            signer.committed(command).await;
        }
    }
    Ok(answer)
}

fn take_key(input: &mut Value) -> Result<String, ApiError> {
    let taken = input.as_object_mut().and_then(|members| members.remove(KEY));
    let Some(value) = taken else {
        return Err(ApiError::field(
            KEY,
            "a call that changes something needs one: any text that is new for each intent",
        ));
    };
    match value {
        Value::String(key) if !key.is_empty() && key.len() <= MAX_KEY => Ok(key),
        _ => Err(ApiError::field(KEY, format!("it is a text of 1 to {MAX_KEY} bytes"))),
    }
}

/// A request without what is hidden.
fn open_part(method: &Method, input: &Value) -> Value {
    let mut open = input.clone();
    if let Some(members) = open.as_object_mut() {
        members.retain(|member, _| !method.hidden.contains(&member.as_str()));
    }
    open
}

/// Hidden members, so that they can be compared and not guessed: an ordinary digest of a short value can be.
fn marks(app: &App, method: &Method, input: &Value) -> Vec<String> {
    let mark = |member: &&str| app.secrets.mark(input[*member].to_string().as_bytes()).to_string();
    method.hidden.iter().map(mark).collect()
}

fn digest(name: &str, input: &Value, marks: &[String]) -> Result<Digest, ApiError> {
    let mut request = json!({ "method": name, "input": input });
    if !marks.is_empty() {
        request["hidden"] = marks.into();
    }
    canonical::digest(&request)
        .map_err(|e| ApiError::new(Code::InvalidInput, "the request cannot be compared with others").why(e.to_string()))
}

/// What the audit row is about: what the request names, else what was made.
fn subject(input: &Value, answer: &Value) -> String {
    let named = ["node", "id", "pool", "name", "commit", "scope"].iter().find_map(|member| input[*member].as_str());
    let made = answer["id"].as_str();
    made.or(named).unwrap_or("fleet").chars().take(200).collect()
}
