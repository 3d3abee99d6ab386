//! What a method is, and how a handler becomes one: requests are decoded and answers encoded here.

use std::{future::Future, pin::Pin, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use store::{Txn, commands::Unsigned};

use crate::api::{ApiError, App, auth::Caller};

/// The longest request body of most methods.
pub const MAX_BODY: usize = 1024 * 1024;

/// What a handler comes to.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Value, ApiError>> + Send + 'a>>;
/// Reads.
pub type QueryHandler = dyn for<'a> Fn(&'a App, &'a Caller, Value) -> Answer<'a> + Send + Sync;
/// Changes something.
pub type MutationHandler = dyn for<'a> Fn(Mutation<'a>, Value) -> Answer<'a> + Send + Sync;

/// What a mutation works with.
#[derive(Debug)]
pub struct Mutation<'a> {
    /// The parts of the API.
    pub app: &'a App,
    /// The transaction, which the dispatcher begins and commits.
    pub txn: &'a mut Txn,
    /// Who asks.
    pub caller: &'a Caller,
    /// The caller's idempotency key.
    pub key: &'a str,
    /// What is left to the dispatcher.
    pub after: &'a mut After,
}

/// What a mutation leaves to the dispatcher. What is to be done once it is committed is lost by a crash, so none of that
/// is truth.
#[derive(Debug, Default)]
pub struct After {
    /// Commands to sign at once, after the commit; the `command` reconciler signs them otherwise.
    pub sign: Vec<Unsigned>,
    /// What the audit row says instead of the request. It is written in the same transaction.
    pub audit: Option<Value>,
}

/// How a method is carried out.
pub enum Handler {
    /// Reads.
    Query(Box<QueryHandler>),
    /// Changes something, in one transaction with its idempotency row and its audit row.
    Mutation(Box<MutationHandler>),
}

/// One method.
pub struct Method {
    /// The group, plural.
    pub group: &'static str,
    /// The name in the group.
    pub name: &'static str,
    /// One sentence for the reference.
    pub summary: &'static str,
    /// What a token needs.
    pub scope: &'static str,
    /// Members of the answer that are shown once and never stored.
    pub secrets: &'static [&'static str],
    /// Members of the request that are stored nowhere in clear: neither in the audit row nor in the idempotency row.
    pub hidden: &'static [&'static str],
    /// The longest request body.
    pub max_body: usize,
    /// How long an answer may take.
    pub deadline: Duration,
    /// The schema of the request, without the idempotency key.
    pub input: fn(&mut SchemaGenerator) -> Schema,
    /// The schema of the answer.
    pub output: fn(&mut SchemaGenerator) -> Schema,
    /// How it is carried out.
    pub handler: Handler,
}

impl Method {
    /// Whether it changes something.
    #[must_use]
    pub const fn is_mutation(&self) -> bool {
        matches!(self.handler, Handler::Mutation(_))
    }

    /// `group.name`, as people write it.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.group, self.name)
    }

    /// Takes long requests, few at a time, and may take its time.
    pub(super) const fn heavy(mut self) -> Self {
        self.max_body = 32 << 20;
        self.deadline = Duration::from_secs(120);
        self
    }

    /// Whether its requests are too long to read many of them at once.
    #[must_use]
    pub const fn is_heavy(&self) -> bool {
        self.max_body > MAX_BODY
    }

    /// Waits for what is to come, so that an answer may take its time.
    pub(super) const fn waits(mut self) -> Self {
        self.deadline = Duration::from_secs(45);
        self
    }

    pub(super) const fn hiding(mut self, hidden: &'static [&'static str]) -> Self {
        self.hidden = hidden;
        self
    }

    pub(super) const fn with_secrets(mut self, secrets: &'static [&'static str]) -> Self {
        self.secrets = secrets;
        self
    }
}

impl std::fmt::Debug for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.full_name())
    }
}

/// A handler of a query, for any lifetime of its borrows.
pub(super) trait Query<'a, I, O>: Send + Sync {
    type Future: Future<Output = Result<O, ApiError>> + Send + 'a;
    fn call(&self, app: &'a App, input: I) -> Self::Future;
}

impl<'a, I, O, F, R> Query<'a, I, O> for F
where
    F: Fn(&'a App, I) -> R + Send + Sync,
    R: Future<Output = Result<O, ApiError>> + Send + 'a,
{
    type Future = R;

    fn call(&self, app: &'a App, input: I) -> R {
        self(app, input)
    }
}

/// A handler of a mutation, for any lifetime of its borrows.
pub(super) trait Change<'a, I, O>: Send + Sync {
    type Future: Future<Output = Result<O, ApiError>> + Send + 'a;
    fn call(&self, mutation: Mutation<'a>, input: I) -> Self::Future;
}

impl<'a, I, O, F, R> Change<'a, I, O> for F
where
    F: Fn(Mutation<'a>, I) -> R + Send + Sync,
    R: Future<Output = Result<O, ApiError>> + Send + 'a,
{
    type Future = R;

    fn call(&self, mutation: Mutation<'a>, input: I) -> R {
        self(mutation, input)
    }
}

pub(super) fn row<I: JsonSchema, O: JsonSchema>(
    group: &'static str,
    name: &'static str,
    scope: &'static str,
    summary: &'static str,
    handler: Handler,
) -> Method {
    Method {
        group,
        name,
        summary,
        scope,
        secrets: &[],
        hidden: &[],
        max_body: MAX_BODY,
        deadline: Duration::from_secs(30),
        input: SchemaGenerator::subschema_for::<I>,
        output: SchemaGenerator::subschema_for::<O>,
        handler,
    }
}

pub(super) fn query<I, O, F>(
    group: &'static str,
    name: &'static str,
    scope: &'static str,
    summary: &'static str,
    handler: F,
) -> Method
where
    I: DeserializeOwned + JsonSchema + Send + 'static,
    O: Serialize + JsonSchema + 'static,
    F: for<'a> Query<'a, I, O> + Copy + 'static,
{
    let handler = Handler::Query(Box::new(move |app, _, input| {
        Box::pin(async move { encode(handler.call(app, decode(input)?).await?) })
    }));
    row::<I, O>(group, name, scope, summary, handler)
}

pub(super) fn mutation<I, O, F>(
    group: &'static str,
    name: &'static str,
    scope: &'static str,
    summary: &'static str,
    handler: F,
) -> Method
where
    I: DeserializeOwned + JsonSchema + Send + 'static,
    O: Serialize + JsonSchema + 'static,
    F: for<'a> Change<'a, I, O> + Copy + 'static,
{
    let handler = Handler::Mutation(Box::new(move |mutation, input| {
        Box::pin(async move { encode(handler.call(mutation, decode(input)?).await?) })
    }));
    row::<I, O>(group, name, scope, summary, handler)
}

pub(super) fn encode(output: impl Serialize) -> Result<Value, ApiError> {
    serde_json::to_value(output).map_err(ApiError::internal)
}

/// Reads a request; an error names the field by its path.
pub(super) fn decode<I: DeserializeOwned>(input: Value) -> Result<I, ApiError> {
    serde_path_to_error::deserialize(input).map_err(|error| {
        let message = error.inner().to_string();
        let path = error.path().to_string();
        // What serde says about a missing or unknown member is about its parent; the member's name stands in its words.
        let member = message
            .strip_prefix("missing field `")
            .or_else(|| message.strip_prefix("unknown field `"))
            .and_then(|rest| rest.split('`').next());
        let name =
            match member {
                None => path,
                Some(member) if path == "." || path == member || path.ends_with(&format!(".{member}")) => {
                    if path == "." { member.to_owned() } else { path }
                }
                Some(member) => format!("{path}.{member}"),
            };
        ApiError::field(name, message)
    })
}
