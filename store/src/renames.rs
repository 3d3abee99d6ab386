//! Renames: an object keeps its rows, and everything that refers to it by name follows, in the transaction of apply.

use std::collections::BTreeMap;

use schema::{
    id::NodeId,
    object::{Kind, ObjectRef},
};

use crate::{DbError, Txn, poke::Poke};

/// Why nothing was renamed.
#[derive(Debug, thiserror::Error)]
pub enum RenameError {
    /// Something else has the name.
    #[error("{to} is taken, so that {from} cannot be renamed to it")]
    Taken {
        /// What should be renamed.
        from: ObjectRef,
        /// The name that is taken.
        to: ObjectRef,
    },
    /// A statement failed.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Renames objects, each `(from, to)` of one kind and no `to` among the `from`s: documents in force, pools and the tokens,
/// joins, targets and machines that name one, machines, holds and suspensions. A machine keeps its id, and with it its
/// session and its certificates. Overlays name profiles too and are written with the machines' rows.
///
/// # Errors
/// [`RenameError::Taken`] when a name is taken; the transaction must then be dropped.
pub async fn apply(txn: &mut Txn, renames: &[(ObjectRef, ObjectRef)]) -> Result<(), RenameError> {
    if renames.is_empty() {
        return Ok(());
    }
    free(txn, renames).await?;
    let kinds: Vec<String> = renames.iter().map(|(from, _)| from.kind.as_str().to_owned()).collect();
    let from: Vec<String> = renames.iter().map(|(from, _)| from.name.to_string()).collect();
    let to: Vec<String> = renames.iter().map(|(_, to)| to.name.to_string()).collect();
    sqlx::query!(
        r#"UPDATE objects o SET name = m.new
           FROM UNNEST($1::text[], $2::text[], $3::text[]) AS m (kind, old, new)
           WHERE o.kind = m.kind AND o.name = m.old"#,
        &kinds,
        &from,
        &to,
    )
    .execute(txn.conn())
    .await
    .map_err(DbError::from)?;
    let (old, new): (Vec<String>, Vec<String>) = renames.iter().map(|(a, b)| (a.to_string(), b.to_string())).unzip();
    scopes(txn, &old, &new).await?;
    let mut by_kind: BTreeMap<Kind, (Vec<String>, Vec<String>)> = BTreeMap::new();
    for (from, to) in renames {
        let (olds, news) = by_kind.entry(from.kind).or_default();
        olds.push(from.name.to_string());
        news.push(to.name.to_string());
    }
    for (kind, (old, new)) in by_kind {
        match kind {
            Kind::Pool => pools(txn, &old, &new).await?,
            Kind::Site => sites(txn, &old, &new).await?,
            Kind::Profile => profiles(txn, &old, &new).await?,
            Kind::Tenant => tenants(txn, &old, &new).await?,
            Kind::Node => machines(txn, &old, &new).await?,
            _ => {}
        }
    }
    Ok(())
}

/// Makes sure that every new name is free. A removed object of that name is history, which `revision_objects` keeps.
async fn free(txn: &mut Txn, renames: &[(ObjectRef, ObjectRef)]) -> Result<(), RenameError> {
    let kinds: Vec<String> = renames.iter().map(|(_, to)| to.kind.as_str().to_owned()).collect();
    let names: Vec<String> = renames.iter().map(|(_, to)| to.name.to_string()).collect();
    sqlx::query!(
        r#"DELETE FROM objects o
           USING UNNEST($1::text[], $2::text[]) AS t (kind, name)
           WHERE o.kind = t.kind AND o.name = t.name AND o.state = 'removed'"#,
        &kinds,
        &names,
    )
    .execute(txn.conn())
    .await
    .map_err(DbError::from)?;
    let taken = sqlx::query!(
        r#"SELECT t.kind AS "kind!", t.name AS "name!"
           FROM UNNEST($1::text[], $2::text[]) AS t (kind, name)
           WHERE EXISTS (SELECT FROM objects o WHERE o.kind = t.kind AND o.name = t.name)
              OR (t.kind = 'pool' AND EXISTS (SELECT FROM pools p WHERE p.name = t.name))
              OR (t.kind = 'node' AND EXISTS (SELECT FROM nodes n WHERE n.name = t.name))
           LIMIT 1"#,
        &kinds,
        &names,
    )
    .fetch_optional(txn.conn())
    .await
    .map_err(DbError::from)?;
    let named = |row: &(ObjectRef, ObjectRef)| {
        taken.as_ref().is_some_and(|taken| row.1.kind.as_str() == taken.kind && row.1.name.as_str() == taken.name)
    };
    match renames.iter().find(|row| named(row)) {
        Some((from, to)) => Err(RenameError::Taken { from: from.clone(), to: to.clone() }),
        None => Ok(()),
    }
}

/// Holds and suspensions, which name what they hold as `kind/name`. What stands at the new name already is as good.
async fn scopes(txn: &mut Txn, old: &[String], new: &[String]) -> Result<(), DbError> {
    sqlx::query!(
        r#"DELETE FROM holds h
           USING UNNEST($1::text[], $2::text[]) AS m (old, new)
           WHERE h.subject = m.old
             AND EXISTS (SELECT FROM holds t WHERE t.subject = m.new AND t.gate = h.gate AND t.source = h.source)"#,
        old,
        new,
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!(
        "UPDATE holds h SET subject = m.new FROM UNNEST($1::text[], $2::text[]) AS m (old, new) WHERE h.subject = m.old",
        old,
        new,
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!(
        r#"DELETE FROM suspensions s
           USING UNNEST($1::text[], $2::text[]) AS m (old, new)
           WHERE s.scope = m.old AND EXISTS (SELECT FROM suspensions t WHERE t.scope = m.new)"#,
        old,
        new,
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!(
        "UPDATE suspensions s SET scope = m.new FROM UNNEST($1::text[], $2::text[]) AS m (old, new) WHERE s.scope = m.old",
        old,
        new,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

async fn pools(txn: &mut Txn, old: &[String], new: &[String]) -> Result<(), DbError> {
    sqlx::query!(
        r#"UPDATE pools p SET name = m.new, updated_at = compute_now()
           FROM UNNEST($1::text[], $2::text[]) AS m (old, new) WHERE p.name = m.old"#,
        old,
        new,
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!(
        r#"WITH m AS (
               SELECT n.id, m.new
               FROM UNNEST($1::text[], $2::text[]) AS m (old, new)
               JOIN nodes n ON n.pool = m.old
               ORDER BY n.id
               FOR NO KEY UPDATE OF n
           )
           UPDATE nodes n SET pool = m.new, version = n.version + 1, updated_at = compute_now()
           FROM m WHERE n.id = m.id"#,
        old,
        new,
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!(
        "UPDATE join_tokens t SET pool = m.new FROM UNNEST($1::text[], $2::text[]) AS m (old, new) WHERE t.pool = m.old",
        old,
        new,
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!(
        "UPDATE joins j SET pool = m.new FROM UNNEST($1::text[], $2::text[]) AS m (old, new) WHERE j.pool = m.old",
        old,
        new,
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!(
        "UPDATE targets t SET pool = m.new FROM UNNEST($1::text[], $2::text[]) AS m (old, new) WHERE t.pool = m.old",
        old,
        new,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

async fn sites(txn: &mut Txn, old: &[String], new: &[String]) -> Result<(), DbError> {
    sqlx::query!(
        r#"UPDATE pools p SET site = m.new, updated_at = compute_now()
           FROM UNNEST($1::text[], $2::text[]) AS m (old, new) WHERE p.site = m.old"#,
        old,
        new,
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!(
        r#"WITH m AS (
               SELECT n.id, m.new
               FROM UNNEST($1::text[], $2::text[]) AS m (old, new)
               JOIN nodes n ON n.site = m.old
               ORDER BY n.id
               FOR NO KEY UPDATE OF n
           )
           UPDATE nodes n SET site = m.new, version = n.version + 1, updated_at = compute_now()
           FROM m WHERE n.id = m.id"#,
        old,
        new,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

async fn profiles(txn: &mut Txn, old: &[String], new: &[String]) -> Result<(), DbError> {
    sqlx::query!(
        "UPDATE targets t SET profile = m.new FROM UNNEST($1::text[], $2::text[]) AS m (old, new) WHERE t.profile = m.old",
        old,
        new,
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!(
        r#"UPDATE pools p
           SET profile_targets = (
               SELECT jsonb_object_agg(COALESCE(m.new, t.key), t.value)
               FROM jsonb_each(p.profile_targets) AS t
               LEFT JOIN UNNEST($1::text[], $2::text[]) AS m (old, new) ON m.old = t.key)
           WHERE p.profile_targets ?| $1"#,
        old,
        new,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

async fn tenants(txn: &mut Txn, old: &[String], new: &[String]) -> Result<(), DbError> {
    sqlx::query!(
        r#"UPDATE pools p SET owner_tenant = m.new
           FROM UNNEST($1::text[], $2::text[]) AS m (old, new) WHERE p.owner_tenant = m.old"#,
        old,
        new,
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!(
        r#"WITH m AS (
               SELECT n.id, m.new
               FROM UNNEST($1::text[], $2::text[]) AS m (old, new)
               JOIN nodes n ON n.owner_tenant = m.old
               ORDER BY n.id
               FOR NO KEY UPDATE OF n
           )
           UPDATE nodes n SET owner_tenant = m.new, version = n.version + 1, updated_at = compute_now()
           FROM m WHERE n.id = m.id"#,
        old,
        new,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// A certificate names a machine by its id, so that it stays good. What a machine is told keeps its old name until it is
/// assigned anew.
async fn machines(txn: &mut Txn, old: &[String], new: &[String]) -> Result<(), DbError> {
    let renamed = sqlx::query_scalar!(
        r#"WITH m AS (
               SELECT n.id, m.new
               FROM UNNEST($1::text[], $2::text[]) AS m (old, new)
               JOIN nodes n ON n.name = m.old
               ORDER BY n.id
               FOR UPDATE OF n
           )
           UPDATE nodes n
           SET name = m.new,
               assigned_name = CASE WHEN n.assigned_digest IS NULL THEN NULL
                                    ELSE NULLIF(COALESCE(n.assigned_name, n.name), m.new) END,
               version = n.version + 1, updated_at = compute_now()
           FROM m WHERE n.id = m.id
           RETURNING n.id"#,
        old,
        new,
    )
    .fetch_all(txn.conn())
    .await?;
    // The machine is told the name that it has.
    renamed.into_iter().for_each(|id| txn.poke(Poke::Node(NodeId::from_uuid(id))));
    Ok(())
}
