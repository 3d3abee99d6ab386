//! Everything that a database holds, as text: for facts about what it must not hold.

use sqlx::AssertSqlSafe;

use crate::{Db, DbError};

/// Every row of every table; bytes are hexadecimal.
///
/// # Errors
/// When a statement fails.
pub async fn dump(db: &Db) -> Result<String, DbError> {
    let tables: Vec<String> =
        sqlx::query_scalar("SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
            .fetch_all(db.pool())
            .await?;
    let mut text = String::new();
    for table in tables {
        let rows = format!("SELECT COALESCE(string_agg(t::text, E'\\n'), '') FROM {table} t");
        let rows: String = sqlx::query_scalar(AssertSqlSafe(rows)).fetch_one(db.pool()).await?;
        text.push_str(&format!("-- {table}\n{rows}\n"));
    }
    Ok(text)
}
