//! A coordinator, a stable address in front of it, and a directory for jobs.

use tempfile::TempDir;

use crate::{
    jobs::JobSpec,
    pipeline::check_exactly_once,
    process::Ratifyd,
    proxy::{Proxy, pass},
};

/// Jobs that write files, and what they need.
pub struct Site {
    /// The coordinator.
    pub ratifyd: Ratifyd,
    /// Where jobs find it, over its restarts.
    pub proxy: Proxy,
    /// Where everything of the jobs lies.
    pub dir: TempDir,
    program: &'static str,
}

impl Site {
    /// A site of this coordinator, which runs, and of jobs that are this program.
    ///
    /// # Panics
    /// When it cannot be made.
    pub async fn new(ratifyd: Ratifyd, program: &'static str) -> Self {
        let proxy = Proxy::start(ratifyd.address(), pass()).await;
        Self { ratifyd, proxy, dir: tempfile::tempdir().unwrap(), program }
    }

    /// A job of this name.
    pub fn job(&self, driver: &'static str, name: &str) -> JobSpec {
        JobSpec::new(self.program, driver, self.proxy.url(), self.dir.path(), name)
    }

    /// Every record is visible once, nothing is staged, and the coordinator has nothing unfinished.
    ///
    /// # Panics
    /// When that is not so.
    pub async fn check(&self, job: &JobSpec, what: &str) {
        check_exactly_once(&job.out(), job.records).unwrap_or_else(|why| panic!("{what}: {why}"));
        job.check_finished(&self.ratifyd.raw(), what).await;
    }
}
