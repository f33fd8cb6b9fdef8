//! Requests for learnt durations of programs.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use protocol::hello::LearntOf;
use serde::Serialize;

use super::away::refuse;
use super::{Control, TOO_MANY_READINGS, send_document};
use crate::daemon::keeper::Asked;
use crate::host::fd_reaper::UntrustedSocket;
use crate::host::learnt::Listed;
use crate::report::status::Viewer;

/// Version of the document; a later one may lack keys.
const SCHEMA_VERSION: u32 = 1;

const NOTHING_KEPT: &str = "this daemon keeps no kernel durations ([learnt] keep = false, virtual \
                            time, or no usable folder)";

#[derive(Serialize)]
struct Document {
    schema_version: u32,
    gpu: String,
    model: String,
    programs: Vec<Listed>,
}

impl Control {
    pub(super) fn pass_on(
        &self,
        socket: UntrustedSocket,
        uid: u32,
        of: LearntOf,
        brought: Vec<OwnedFd>,
    ) {
        let Some(keeper) = &self.keeper else {
            return refuse(&socket, NOTHING_KEPT.to_owned());
        };
        let gpu = &self.identity.gpu;
        if !of.device.is_empty() && !gpu.is(&of.device) {
            let reason = format!("this daemon schedules {}, not {}", gpu.uuid, of.device);
            return refuse(&socket, reason);
        }
        if of.user.is_some_and(|user| user != uid) && Viewer::of(uid) != Viewer::Operator {
            return refuse(&socket, "the program belongs to another user".to_owned());
        }
        let asked = Asked {
            socket,
            uid,
            of,
            notebook: brought.into_iter().next(),
        };
        if let Err(asked) = keeper.put(asked) {
            refuse(
                &asked.socket,
                "too many requests are waiting; try again".to_owned(),
            );
        }
    }

    pub(super) fn send_learnt(&self, socket: UntrustedSocket, uid: u32) {
        let Some(keeper) = &self.keeper else {
            return refuse(&socket, NOTHING_KEPT.to_owned());
        };
        let viewer = Viewer::of(uid);
        let Some(reading) = self.begin_reading(uid, viewer) else {
            return refuse(&socket, TOO_MANY_READINGS.to_owned());
        };
        let store = Arc::clone(keeper.store());
        let gpu = self.identity.gpu.clone();
        send_document(socket, reading, move || {
            let document = Document {
                schema_version: SCHEMA_VERSION,
                gpu: gpu.uuid,
                model: gpu.name,
                programs: store.list(match viewer {
                    Viewer::Operator => None,
                    Viewer::User(uid) => Some(uid),
                }),
            };
            serde_json::to_string(&document).unwrap_or_default()
        });
    }
}
