//! The process under its usual names, as every Prometheus client library has them.

use metrics::{Counter, Gauge};

use super::{counter, gauge};

/// What the operating system says about the process.
pub(super) struct Process {
    cpu_seconds: Counter,
    open_fds: Gauge,
    max_fds: Gauge,
    resident_bytes: Gauge,
    start_seconds: Gauge,
    threads: Gauge,
}

impl Process {
    pub(super) fn new() -> Self {
        let build = "ratified_build_info";
        metrics::describe_gauge!(build, "Always 1; the label is the version that runs.");
        metrics::gauge!(build, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        Self {
            cpu_seconds: counter("process_cpu_seconds_total", "CPU time spent, whole seconds."),
            open_fds: gauge("process_open_fds", "File descriptors that are open."),
            max_fds: gauge("process_max_fds", "File descriptors that the process may have."),
            resident_bytes: gauge("process_resident_memory_bytes", "Memory that is resident."),
            start_seconds: gauge("process_start_time_seconds", "When the process started, since 1970."),
            threads: gauge("process_threads", "Threads of the operating system."),
        }
    }

    /// Asks the operating system; what it does not say stays as it was. Only Linux is asked.
    pub(super) fn observe(&self) {
        #[cfg(target_os = "linux")]
        // Nothing can be done about a number that cannot be read, and the others are worth telling.
        let _ = self.read_proc();
    }

    #[cfg(target_os = "linux")]
    #[expect(clippy::cast_precision_loss, reason = "shown, not counted with")]
    fn read_proc(&self) -> procfs::ProcResult<()> {
        use procfs::{WithCurrentSystemInfo, process::LimitValue};

        let process = procfs::process::Process::myself()?;
        let stat = process.stat()?;
        let ticks_per_second = procfs::ticks_per_second().max(1);
        self.cpu_seconds.absolute(stat.utime.saturating_add(stat.stime) / ticks_per_second);
        self.resident_bytes.set(stat.rss_bytes().get() as f64);
        self.threads.set(stat.num_threads as f64);
        let started = stat.starttime as f64 / ticks_per_second as f64;
        self.start_seconds.set(procfs::boot_time_secs()? as f64 + started);
        self.open_fds.set(process.fd_count()? as f64);
        let max_fds = match process.limits()?.max_open_files.soft_limit {
            LimitValue::Value(count) => count as f64,
            LimitValue::Unlimited => f64::INFINITY,
        };
        self.max_fds.set(max_fds);
        Ok(())
    }
}
