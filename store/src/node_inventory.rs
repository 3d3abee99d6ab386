//! What machines are made of, section by section, as the node signed it.

use std::collections::BTreeMap;

use schema::{digest::Digest, id::NodeId, inventory::InventorySection, time::Timestamp};

use crate::{
    Db, DbError, Txn, convert,
    rows::{self, Stored},
};

/// A stored section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSection {
    /// The digest of `doc`.
    pub digest: Digest,
    /// The document, canonical JSON.
    pub doc: String,
    /// When it changed.
    pub observed_at: Timestamp,
}

/// The inventory of one node.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db, id: NodeId) -> Result<BTreeMap<InventorySection, StoredSection>, DbError> {
    let statement = sqlx::query_as!(
        Row,
        "SELECT node_id, section, digest, doc, observed_at FROM node_inventory WHERE node_id = $1",
        id.as_uuid(),
    );
    Ok(rows::list(db.pool(), statement).await?.whole()?.into_iter().collect())
}

/// The digests of one node's sections, without the documents: what a gateway compares with Hello.
///
/// # Errors
/// When the statement fails.
pub async fn digests(db: &Db, id: NodeId) -> Result<BTreeMap<InventorySection, Digest>, DbError> {
    let rows = sqlx::query!("SELECT section, digest FROM node_inventory WHERE node_id = $1", id.as_uuid())
        .fetch_all(db.pool())
        .await?;
    rows.into_iter()
        .map(|row| Ok((convert::word("inventory section", &row.section)?, convert::digest(&row.digest)?)))
        .collect()
}

/// Stores sections, those that changed.
///
/// # Errors
/// When the statement fails.
pub async fn upsert(txn: &mut Txn, id: NodeId, sections: &[(InventorySection, Digest, String)]) -> Result<(), DbError> {
    let sections: BTreeMap<InventorySection, (&Digest, &String)> =
        sections.iter().map(|(section, digest, doc)| (*section, (digest, doc))).collect();
    let names: Vec<String> = sections.keys().map(ToString::to_string).collect();
    let digests: Vec<Vec<u8>> = sections.values().map(|(digest, _)| convert::digest_column(digest)).collect();
    let docs: Vec<String> = sections.values().map(|(_, doc)| (*doc).clone()).collect();
    sqlx::query!(
        r#"INSERT INTO node_inventory AS i (node_id, section, digest, doc)
           SELECT $1, section, digest, doc FROM UNNEST($2::text[], $3::bytea[], $4::text[]) AS n (section, digest, doc)
           ON CONFLICT (node_id, section) DO UPDATE
           SET digest = EXCLUDED.digest, doc = EXCLUDED.doc, observed_at = EXCLUDED.observed_at
           WHERE i.digest <> EXCLUDED.digest"#,
        id.as_uuid(),
        &names,
        &digests,
        &docs,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Removes sections that the node can no longer read.
///
/// # Errors
/// When the statement fails.
pub async fn remove(txn: &mut Txn, id: NodeId, sections: &[InventorySection]) -> Result<(), DbError> {
    let sections: Vec<String> = sections.iter().map(ToString::to_string).collect();
    sqlx::query!("DELETE FROM node_inventory WHERE node_id = $1 AND section = ANY($2)", id.as_uuid(), &sections)
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
    doc: String,
    observed_at: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = (InventorySection, StoredSection);
    const TABLE: &'static str = "node_inventory";
    const KEY: &'static [&'static str] = &["node_id", "section"];

    fn read(self) -> Result<(InventorySection, StoredSection), DbError> {
        let section = StoredSection {
            digest: convert::digest(&self.digest)?,
            doc: self.doc,
            observed_at: self.observed_at.to_jiff(),
        };
        Ok((convert::word("inventory section", &self.section)?, section))
    }
}
