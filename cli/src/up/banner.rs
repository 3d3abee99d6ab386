//! The few lines that `up` prints when it is ready: where it is, and what to type next. Pure.

use std::path::Path;

use crate::data_dir::ClientFile;

/// What the lines say.
#[derive(Debug)]
pub struct Banner<'a> {
    /// The repository that is followed.
    pub fleet: &'a str,
    /// The data directory, as it was named.
    pub data: &'a Path,
    /// Whether commands find that directory without being told.
    pub usual_data: bool,
    /// Where everything listens.
    pub client: &'a ClientFile,
    /// Whether described hardware is admitted.
    pub dev: bool,
    /// Where the rows are.
    pub database: &'a str,
}

impl Banner<'_> {
    /// The lines.
    #[must_use]
    pub fn lines(&self) -> String {
        let named = if self.usual_data {
            String::new()
        } else {
            format!("export BETTER_COMPUTE_DATA={}\n  ", self.data.display())
        };
        let dev = if self.dev { "\n  dev        described hardware is admitted; not for production" } else { "" };
        format!(
            "\
better-compute is up
  fleet      {}
  api        {}
  gateway    {}
  database   {}
  data       {}{dev}

Next, in another terminal:
  {named}better-compute status --watch
  better-compute token create --pool POOL      prints the line that makes a machine join

Stop with Ctrl-C; nothing is lost.",
            self.fleet,
            self.client.url,
            self.client.gateway,
            self.database,
            self.data.display(),
        )
    }
}
