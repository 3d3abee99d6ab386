//! What asks for a batch and is none, or none yet, each with the reason.

use schema::time::Timestamp;

use super::{Origin, time};
use crate::{
    Db, DbError, Listed, Txn, convert,
    rows::{self, Stored},
};

/// Something that asks for a batch and is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAsk {
    /// The name of a document, or the branch of a proposal below `bc/proposals/`.
    pub name: String,
    /// Why it is none, a stable word.
    pub code: String,
    /// Why, for people.
    pub message: String,
    /// It is tried again by itself; else somebody has to do something.
    pub waits: bool,
    /// The commit of a proposal.
    pub commit: Option<String>,
    /// Where it is written.
    pub place: Option<String>,
    /// What was looked at, and under what: the same is not judged twice.
    pub looked: String,
}

/// The same as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// A document or a proposal.
    pub origin: Origin,
    /// What asks, and why it is no batch.
    pub new: NewAsk,
    /// Since when that is why.
    pub since: Timestamp,
}

/// Everything that asks for a batch and is none, documents first, by name.
///
/// # Errors
/// When the statement fails.
pub async fn asks(db: &Db) -> Result<Listed<Ask>, DbError> {
    let statement = sqlx::query_as!(
        Row,
        r#"SELECT origin, name, code, message, waits, commit, place, looked, since
           FROM batch_asks
           ORDER BY origin, name COLLATE "C""#
    );
    rows::list(db.pool(), statement).await
}

#[derive(sqlx::FromRow)]
struct Row {
    origin: String,
    name: String,
    code: String,
    message: String,
    waits: bool,
    commit: Option<String>,
    place: Option<String>,
    looked: String,
    since: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = Ask;
    const TABLE: &'static str = "batch_asks";
    const KEY: &'static [&'static str] = &["origin", "name"];

    fn read(self) -> Result<Ask, DbError> {
        let Self { origin, name, code, message, waits, commit, place, looked, since } = self;
        Ok(Ask {
            origin: convert::word("origin of a batch", &origin)?,
            new: NewAsk { name, code, message, waits, commit, place, looked },
            since: time(since),
        })
    }
}

/// Writes down everything that asks in one way and is no batch; what else asked that way is forgotten. What is none for the same
/// reason as before is so since then.
///
/// # Errors
/// When a statement fails.
pub async fn set_asks(txn: &mut Txn, origin: Origin, asks: &[NewAsk]) -> Result<(), DbError> {
    let names: Vec<String> = asks.iter().map(|ask| ask.name.clone()).collect();
    sqlx::query!("DELETE FROM batch_asks WHERE origin = $1 AND NOT name = ANY ($2)", origin.as_str(), &names)
        .execute(txn.conn())
        .await?;
    for ask in asks {
        sqlx::query!(
            r#"INSERT INTO batch_asks AS a (origin, name, code, message, waits, commit, place, looked)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
               ON CONFLICT (origin, name) DO UPDATE
               SET code = EXCLUDED.code, message = EXCLUDED.message, waits = EXCLUDED.waits, commit = EXCLUDED.commit,
                   place = EXCLUDED.place, looked = EXCLUDED.looked,
                   since = CASE WHEN a.code = EXCLUDED.code THEN a.since ELSE EXCLUDED.since END"#,
            origin.as_str(),
            ask.name,
            ask.code,
            ask.message,
            ask.waits,
            ask.commit,
            ask.place,
            ask.looked,
        )
        .execute(txn.conn())
        .await?;
    }
    Ok(())
}
