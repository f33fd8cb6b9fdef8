//! Streams that wait for a value in memory. A stream of this client, another device's server, or
//! the application (pinned memory is its own) may write it. While such a wait heads its stream, the
//! server polls memory every [`LOOK_NS`].

use softgpu::wire::Until;
use softgpu::{Memory as _, Op, StreamId};

use super::commands::Violation;
use super::{ClientId, ILLEGAL_ADDRESS, World};
use crate::client::Effect;

/// Poll interval, device time.
const LOOK_NS: u64 = 20_000;

#[derive(Debug)]
pub(super) struct ValueWait {
    client: ClientId,
    context: u32,
    /// The stream that it holds in the model.
    stream: StreamId,
    gpu_seq: u64,
    at: u64,
    width_bytes: u32,
    value: u64,
    until: Until,
}

enum Found {
    /// It is not its turn, or the condition does not hold.
    Waits,
    /// It is over, and its stream must be released.
    Over,
    Gone,
}

impl World {
    pub(super) fn wait_for_value(
        &mut self,
        id: ClientId,
        slot: u32,
        seq: u64,
        (at, width_bytes, value, until): (u64, u32, u64, Until),
    ) -> Result<(), Violation> {
        let (stream, gpu_seq) = self.submit(id, slot, Some(seq), Op::Hold, Effect::None)?;
        let context = self.clients[&id].streams[slot as usize]
            .as_ref()
            .ok_or(Violation)?
            .context;
        self.value_waits.push(ValueWait {
            client: id,
            context,
            stream,
            gpu_seq,
            at,
            width_bytes,
            value,
            until,
        });
        Ok(())
    }

    /// Releases the streams whose wait is over; returns whether there were any.
    pub(super) fn end_value_waits(&mut self) -> bool {
        let mut waits = std::mem::take(&mut self.value_waits);
        let mut is_any = false;
        waits.retain(|wait| match self.look(wait) {
            Found::Waits => true,
            Found::Gone => false,
            Found::Over => {
                self.gpu
                    .release(self.time.now_ns(), wait.stream, wait.gpu_seq);
                is_any = true;
                false
            }
        });
        self.value_waits = waits;
        is_any
    }

    pub(super) fn next_look_ns(&self) -> Option<u64> {
        let mut waits = self.value_waits.iter();
        let is_due = waits.any(|wait| self.is_due(wait));
        is_due.then(|| self.gpu.now_ns() + LOOK_NS)
    }

    fn is_due(&self, wait: &ValueWait) -> bool {
        self.gpu.is_held(wait.stream, wait.gpu_seq)
    }

    fn look(&self, wait: &ValueWait) -> Found {
        let Some(client) = self.clients.get(&wait.client) else {
            return Found::Gone;
        };
        match self.gpu.last_completed(wait.stream) {
            None => return Found::Gone,
            Some(completed) if completed >= wait.gpu_seq => return Found::Gone,
            Some(_) if !self.is_due(wait) => return Found::Waits,
            Some(_) => {}
        }
        let mut bytes = [0; 8];
        let memory = &mut bytes[..wait.width_bytes as usize];
        if client.space.read(wait.at, memory).is_err() {
            client.fail_context(wait.context, ILLEGAL_ADDRESS);
            return Found::Over;
        }
        let memory = u64::from_le_bytes(bytes);
        if wait.until.is_over(wait.width_bytes, memory, wait.value) {
            Found::Over
        } else {
            Found::Waits
        }
    }
}
