//! The store that bundles of logs go to, as the command line names it.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use reconciler::logs::{Keys, LogStore, Place};

use crate::exit::{During as _, Failure};

/// Where bundles of `logs.collect` go. Without a bucket they stay on their machines.
#[derive(Debug, Clone, Args)]
pub struct LogStoreArgs {
    /// Bucket that bundles of logs are uploaded to, in a store that speaks S3
    #[arg(long, value_name = "BUCKET")]
    pub logs_bucket: Option<String>,
    /// Where that store is, https://…; AWS in the region when nothing is said
    #[arg(long, value_name = "URL", requires = "logs_bucket")]
    pub logs_endpoint: Option<String>,
    /// Its region
    #[arg(long, value_name = "REGION", default_value = "us-east-1")]
    pub logs_region: String,
    /// What the names of bundles begin with
    #[arg(long, value_name = "PREFIX", default_value = "support-bundles")]
    pub logs_prefix: String,
    /// File with its keys, as the tools of AWS have it; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY when nothing is said
    #[arg(long, value_name = "FILE", requires = "logs_bucket")]
    pub logs_credentials: Option<PathBuf>,
}

impl LogStoreArgs {
    /// The store, when there is to be one.
    ///
    /// # Errors
    /// When it makes no sense, or its keys cannot be read.
    pub fn open(&self) -> Result<Option<Arc<LogStore>>, Failure> {
        let Some(bucket) = &self.logs_bucket else { return Ok(None) };
        let aws = || format!("https://s3.{}.amazonaws.com", self.logs_region);
        let place = Place {
            bucket: bucket.clone(),
            endpoint: self.logs_endpoint.clone().unwrap_or_else(aws),
            region: self.logs_region.clone(),
            prefix: self.logs_prefix.clone(),
        };
        let keys = self.logs_credentials.clone().map_or(Keys::Env, Keys::File);
        let store = LogStore::new(place, keys).during("cannot use --logs-bucket")?;
        Ok(Some(Arc::new(store)))
    }
}
