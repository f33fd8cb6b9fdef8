//! Answers messages.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use protocol::pages::BellPage;
use protocol::segment::{Access, Mapping};
use softgpu::Sharing;
use softgpu::wire::{DEVICES, DevicePage, HOST_ARENA_BYTES, HostArena, Reply, Request};

use super::monitor::sum;
use super::{CLIENTS_MAX, ClientId, World};
use crate::client::{Client, Context};
use crate::device_memory::{DeviceMemory, Window};
use crate::shared::Shared;

/// CUDA_ERROR_INVALID_VALUE.
const INVALID_VALUE: u32 = 1;
/// CUDA_ERROR_OUT_OF_MEMORY.
const OUT_OF_MEMORY: u32 = 2;
/// CUDA_ERROR_INVALID_CONTEXT.
const INVALID_CONTEXT: u32 = 201;

const UNLABELLED: &str = "(unlabelled)";

impl World {
    /// Adds a driver as a client. The descriptors go with the welcome.
    pub(crate) fn add_client(
        &mut self,
        label: &str,
        pid: Option<u32>,
        socket: Arc<OwnedFd>,
        host: Option<OwnedFd>,
    ) -> io::Result<(ClientId, Reply, Vec<OwnedFd>)> {
        if self.clients.len() >= CLIENTS_MAX {
            return Err(io::Error::other("too many clients"));
        }
        let (page_fd, page) = Mapping::<Shared<DevicePage>>::create("softgpu-page")?;
        let (host_fd, host) = match host {
            Some(fd) => {
                let host = Mapping::<Shared<HostArena>>::open(&fd, Access::ReadWrite)?;
                (fd, host)
            }
            None => Mapping::<Shared<HostArena>>::create("softgpu-host")?,
        };
        let (bell_fd, bell) = Mapping::<BellPage>::create("softgpu-bell")?;
        bell.bell.key.store(self.time.bell_key(), Ordering::Relaxed);
        page.initialise();
        let fds = vec![page_fd, host_fd, bell_fd, self.doorbell_fd.try_clone()?];
        let id = ClientId(self.client_next);
        self.client_next += 1;
        let label = if label.is_empty() { UNLABELLED } else { label };
        let counters = self.labels.of(label);
        counters.processes += 1;
        counters.connected += 1;
        let (name, memory) = ((label.to_owned(), pid), self.memory.part());
        let client = Client::new(name, memory, page, bell, host, socket);
        self.clients.insert(id, client);
        let reply = Reply::Welcome {
            device: self.gpu.device().name.clone(),
            uuid: self.uuid,
            is_virtual: self.time.is_virtual(),
            is_mps: self.gpu.config().sharing == Sharing::Mps,
            block_priority: self.gpu.config().block_priority,
        };
        Ok((id, reply, fds))
    }

    /// Answers a driver's message; `None` if a driver must not send it.
    pub(crate) fn handle_request(&mut self, id: ClientId, request: &Request) -> Option<Reply> {
        // Its earlier commands precede this request.
        self.take_commands(id);
        self.let_complete();
        if !self.clients.contains_key(&id) {
            return None;
        }
        let reply = match *request {
            Request::Hello { .. }
            | Request::Stats
            | Request::Monitor
            | Request::Inject(_)
            | Request::Mps(_) => return None,
            Request::MapHost { base, device_base } => self.map_host(id, base, device_base),
            Request::CreateContext {
                connections,
                sms_max,
            } => self.create_context(id, connections, sms_max),
            Request::DestroyContext { context } => self.destroy_context(id, context),
            Request::Allocate { context, bytes } => self.allocate(id, context, bytes, Window::High),
            Request::Free { address } => self.free(id, address),
            Request::MemoryInfo => Ok(self.memory_info()),
            Request::Memory(request) => self.handle_memory(id, request),
        };
        self.ring_doorbell();
        Some(reply.unwrap_or_else(|code| Reply::Refused { code }))
    }

    pub(super) fn client(&mut self, id: ClientId) -> &mut Client {
        self.clients
            .get_mut(&id)
            .expect("looked up before the request is handled")
    }

    fn map_host(&mut self, id: ClientId, base: u64, device_base: u64) -> Result<Reply, u32> {
        let is_known = (0..DEVICES).any(|index| softgpu::wire::device_base(index) == device_base);
        if base == 0 || base.checked_add(HOST_ARENA_BYTES).is_none() || !is_known {
            return Err(INVALID_VALUE);
        }
        let space = &mut self.client(id).space;
        // Existing allocations would be lost.
        if !space.device.is_unused() {
            return Err(INVALID_VALUE);
        }
        space.host_base = base;
        space.device = DeviceMemory::at(device_base);
        Ok(Reply::Done)
    }

    fn create_context(
        &mut self,
        id: ClientId,
        connections: u32,
        sms_max: u32,
    ) -> Result<Reply, u32> {
        if let Some(code) = self.refusal_of_contexts() {
            return Err(code);
        }
        if self.is_mps_awaited(id)? {
            return Ok(Reply::Later);
        }
        let free = self.client(id).contexts.iter().position(Option::is_none);
        let slot = free.ok_or(OUT_OF_MEMORY)?;
        let made = self.gpu.create_context_with(connections as usize);
        let limited = self.gpu.limit_sms(made, sms_max);
        debug_assert!(limited.is_ok(), "it was just made");
        let context = Context {
            id: made,
            legacy: None,
            blocking: Vec::new(),
        };
        let client = self.client(id);
        client.contexts[slot] = Some(context);
        client.page.errors.0[slot].store(0, Ordering::Relaxed);
        Ok(Reply::Context {
            context: slot as u32,
        })
    }

    fn destroy_context(&mut self, id: ClientId, slot: u32) -> Result<Reply, u32> {
        let now_ns = self.time.now_ns();
        let context = self.client(id).contexts[slot as usize]
            .take()
            .ok_or(INVALID_CONTEXT)?;
        let used = self.gpu.utilisation_of(context.id);
        let gone = &mut self.client(id).used_gone;
        *gone = sum(*gone, used);
        self.gpu
            .destroy_context(now_ns, context.id)
            .map_err(|_| INVALID_CONTEXT)?;
        let client = self.client(id);
        let freed = client.space.device.remove_context(slot);
        client.holdings.forget_context(slot, &freed);
        let mut gone = Vec::new();
        let mut must_ring = false;
        for stream_slot in client.streams_of(slot) {
            let Some(stream) = client.streams[stream_slot as usize].take() else {
                continue;
            };
            gone.push(stream.id);
            // No thread must wait for dropped commands.
            if let Some(seq) = stream.pending.iter().rev().find_map(|pending| pending.seq) {
                must_ring |= client.page.publish(stream_slot, seq);
            }
        }
        if must_ring {
            let client = &self.clients[&id];
            self.time.ring(&client.bell.bell);
        }
        for stream in gone {
            self.streams.remove(&stream);
        }
        Ok(Reply::Done)
    }

    fn memory_info(&self) -> Reply {
        let total_bytes = self.gpu.device().memory_bytes;
        Reply::Memory {
            free_bytes: total_bytes - self.memory.used_bytes(),
            total_bytes,
        }
    }
}
