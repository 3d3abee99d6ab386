//! How each section of a node's spec ended, as the node signed it.

use std::collections::BTreeMap;

use schema::{generation::Generation, id::NodeId, report::SectionStatus, spec::Section, time::Timestamp};

use crate::{
    Db, DbError, Txn, convert,
    rows::{self, Stored},
};

/// The stored end of one section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSection {
    /// The section.
    pub section: Section,
    /// How it ended.
    pub status: SectionStatus,
    /// At which generation.
    pub generation: Generation,
    /// Since when it is so.
    pub since: Timestamp,
}

/// The sections of one node.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db, id: NodeId) -> Result<Vec<NodeSection>, DbError> {
    let statement = sqlx::query_as!(
        Row,
        "SELECT node_id, section, digest, state, reason, generation, since FROM node_sections WHERE node_id = $1 ORDER BY section",
        id.as_uuid(),
    );
    rows::list(db.pool(), statement).await?.whole()
}

/// Makes the sections of a node exactly these. A row that does not change is not written; `since` moves with digest,
/// state or reason, not with the generation alone.
///
/// # Errors
/// When a statement fails.
pub async fn replace(
    txn: &mut Txn,
    id: NodeId,
    generation: Generation,
    sections: &BTreeMap<Section, SectionStatus>,
) -> Result<(), DbError> {
    let names: Vec<String> = sections.keys().map(ToString::to_string).collect();
    let digests: Vec<Vec<u8>> = sections.values().map(|s| convert::digest_column(&s.digest)).collect();
    let states: Vec<String> = sections.values().map(|s| s.state.to_string()).collect();
    let reasons: Vec<String> = sections.values().map(|s| s.reason.clone()).collect();
    sqlx::query!("DELETE FROM node_sections WHERE node_id = $1 AND section <> ALL ($2)", id.as_uuid(), &names)
        .execute(txn.conn())
        .await?;
    sqlx::query!(
        r#"INSERT INTO node_sections AS s (node_id, section, digest, state, reason, generation)
           SELECT $1, section, digest, state, reason, $6
           FROM UNNEST($2::text[], $3::bytea[], $4::text[], $5::text[]) AS n (section, digest, state, reason)
           ON CONFLICT (node_id, section) DO UPDATE
           SET digest = EXCLUDED.digest, state = EXCLUDED.state, reason = EXCLUDED.reason, generation = EXCLUDED.generation,
               since = CASE WHEN (s.digest, s.state, s.reason) = (EXCLUDED.digest, EXCLUDED.state, EXCLUDED.reason)
                            THEN s.since ELSE EXCLUDED.since END
           WHERE (s.digest, s.state, s.reason, s.generation)
                 IS DISTINCT FROM (EXCLUDED.digest, EXCLUDED.state, EXCLUDED.reason, EXCLUDED.generation)"#,
        id.as_uuid(),
        &names,
        &digests,
        &states,
        &reasons,
        generation.to_i64(),
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

#[derive(sqlx::FromRow)]
struct Row {
    #[expect(dead_code, reason = "the row is found by it when it cannot be read")]
    node_id: uuid::Uuid,
    section: String,
    digest: Vec<u8>,
    state: String,
    reason: String,
    generation: i64,
    since: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = NodeSection;
    const TABLE: &'static str = "node_sections";
    const KEY: &'static [&'static str] = &["node_id", "section"];

    fn read(self) -> Result<NodeSection, DbError> {
        Ok(NodeSection {
            section: convert::word("section", &self.section)?,
            status: SectionStatus {
                digest: convert::digest(&self.digest)?,
                state: convert::word("section state", &self.state)?,
                reason: self.reason,
            },
            generation: Generation::from_i64(self.generation),
            since: self.since.to_jiff(),
        })
    }
}
