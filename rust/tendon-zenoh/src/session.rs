// SPDX-License-Identifier: Apache-2.0
//! A session of Zenoh, and its connections.

use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use zenoh::sample::SampleKind;
use zenoh::session::{TransportEvent, TransportEventsListener, ZenohId};
use zenoh::{Config, Wait};

use crate::memory::Text;
use crate::Context;

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// An entry of the configuration: `connect/endpoints` and its value in JSON5.
#[repr(C)]
pub struct Change {
    key: Text,
    value: Text,
}

#[derive(Default)]
struct Connected {
    ids: HashSet<ZenohId>,
    lost: u64,
}

/// Follows the connections; reports whether there is any.
struct Connections {
    context: Context,
    on_state: extern "C" fn(*mut c_void, i32),
    connected: Mutex<Connected>,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Connected> {
        self.connected.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn on_event(&self, event: &TransportEvent) {
        let mut connected = self.lock();
        let was = !connected.ids.is_empty();
        let id = *event.transport().zid();
        if event.kind() == SampleKind::Put {
            connected.ids.insert(id);
        } else {
            connected.ids.remove(&id);
            connected.lost += 1;
        }
        let is = !connected.ids.is_empty();
        // Reported under the lock: two changes keep their order.
        if was != is {
            (self.on_state)(self.context.data(), i32::from(is));
        }
    }
}

pub fn config_of(config: &Text, changes: &[Change]) -> Fallible<Config> {
    let mut config = Config::from_json5(config.to_str()?)?;
    for change in changes {
        let (key, value) = (change.key.to_str()?, change.value.to_str()?);
        config.insert_json5(key, value).map_err(|error| format!("{key}={value}: {error}"))?;
    }
    Ok(config)
}

pub struct Session {
    zenoh: zenoh::Session,
    connections: Arc<Connections>,
    // Dropped before the session.
    listener: Option<TransportEventsListener<()>>,
}

impl Session {
    pub fn open(
        config: Config,
        context: Context,
        on_state: extern "C" fn(*mut c_void, i32),
    ) -> Fallible<Session> {
        let zenoh = zenoh::open(config).wait()?;
        let connections = Arc::new(Connections { context, on_state, connected: Mutex::default() });
        let told = connections.clone();
        let listener = zenoh
            .info()
            .transport_events_listener()
            .history(true)
            .callback(move |event| told.on_event(&event))
            .wait()?;
        Ok(Session { zenoh, connections, listener: Some(listener) })
    }

    pub fn zenoh(&self) -> &zenoh::Session {
        &self.zenoh
    }

    /// Counts the lost connections, including those without a link. Zenoh removes the last link of
    /// a connection, then ends its requests, and only then reports that it is lost.
    pub fn losses(&self) -> u64 {
        let before = self.connections.lock().ids.clone();
        let linked: HashSet<ZenohId> =
            self.zenoh.info().links().wait().map(|link| *link.zid()).collect();
        let connected = self.connections.lock();
        let cut = before.iter().filter(|id| connected.ids.contains(id) && !linked.contains(id));
        connected.lost + cut.count() as u64
    }

    /// Closes the session. False: it is not closed yet, and a thread of its own continues.
    pub fn close(mut self, timeout: Duration) -> bool {
        let (closed, is_closed) = mpsc::channel();
        // A thread of its own has all that Zenoh needs to close, also at the exit of the process.
        let closer = std::thread::Builder::new().name("zenoh-close".into()).spawn(move || {
            drop(self.listener.take());
            let _ = self.zenoh.close().wait();
            drop(self);
            let _ = closed.send(());
        });
        closer.is_ok() && is_closed.recv_timeout(timeout).is_ok()
    }
}
