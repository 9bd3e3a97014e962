//! The coordinator as a process of its own that a drill starts and kills.

use std::{net::SocketAddr, path::Path, sync::Arc};

use ratified_coordinator::{Config, Coordinator};

use super::{
    control::{Control, tell},
    error::{DrillError, of_subject},
    message::Event,
};

/// Serves a coordinator until it is killed, or its parent is gone.
///
/// # Errors
/// See [`DrillError`].
pub async fn serve(data_dir: &Path, listen: SocketAddr) -> Result<(), DrillError> {
    // Only for the end of stdin: nobody arms anything here.
    let _: Arc<Control> = Control::start().map_err(|source| DrillError::Process { name: "coordinator", source })?;
    let mut config = Config::local(data_dir);
    config.listen = listen;
    let coordinator = Coordinator::start(config).await.map_err(of_subject)?;
    tell(&Event::Listening(coordinator.local_addr()));
    coordinator.wait().await.map_err(of_subject)?;
    Ok(())
}
