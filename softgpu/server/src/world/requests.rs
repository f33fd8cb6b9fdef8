//! Answering messages.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use protocol::pages::BellPage;
use protocol::segment::Mapping;
use softgpu::wire::{DevicePage, HOST_ARENA_BYTES, HostArena, Reply, Request};

use super::{CLIENTS_MAX, ClientId, World};
use crate::client::{Client, Context};
use crate::device_memory::rounded_bytes;
use crate::shared::Shared;

/// CUDA_ERROR_INVALID_VALUE.
const INVALID_VALUE: u32 = 1;
/// CUDA_ERROR_OUT_OF_MEMORY.
const OUT_OF_MEMORY: u32 = 2;
/// CUDA_ERROR_INVALID_CONTEXT.
const INVALID_CONTEXT: u32 = 201;

/// Label of processes that have none.
const UNLABELLED: &str = "(unlabelled)";

impl World {
    /// Takes in a driver. The descriptors go with the welcome.
    pub(crate) fn add_client(
        &mut self,
        label: &str,
        socket: Arc<OwnedFd>,
    ) -> io::Result<(ClientId, Reply, Vec<OwnedFd>)> {
        if self.clients.len() >= CLIENTS_MAX {
            return Err(io::Error::other("too many clients"));
        }
        let (page_fd, page) = Mapping::<Shared<DevicePage>>::create("softgpu-page")?;
        let (host_fd, host) = Mapping::<Shared<HostArena>>::create("softgpu-host")?;
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
        self.clients
            .insert(id, Client::new(label.to_owned(), page, bell, host, socket));
        let reply = Reply::Welcome {
            device: self.gpu.device().name.clone(),
            uuid: self.uuid,
            is_virtual: self.time.is_virtual(),
        };
        Ok((id, reply, fds))
    }

    /// Answers a driver's message; `None` if it makes no sense from a driver.
    pub(crate) fn handle_request(&mut self, id: ClientId, request: &Request) -> Option<Reply> {
        // What it asked before by command comes before what it asks now.
        self.take_commands(id);
        self.let_complete();
        if !self.clients.contains_key(&id) {
            return None;
        }
        let reply = match *request {
            Request::Hello { .. } | Request::Stats => return None,
            Request::MapHost { base } => self.map_host(id, base),
            Request::CreateContext => self.create_context(id),
            Request::DestroyContext { context } => self.destroy_context(id, context),
            Request::Allocate { context, bytes } => self.allocate(id, context, bytes),
            Request::Free { address } => self.free(id, address),
            Request::MemoryInfo => Ok(self.memory_info()),
        };
        self.ring_doorbell();
        Some(reply.unwrap_or_else(|code| Reply::Refused { code }))
    }

    fn client(&mut self, id: ClientId) -> &mut Client {
        self.clients
            .get_mut(&id)
            .expect("looked up before the request is handled")
    }

    fn map_host(&mut self, id: ClientId, base: u64) -> Result<Reply, u32> {
        if base == 0 || base.checked_add(HOST_ARENA_BYTES).is_none() {
            return Err(INVALID_VALUE);
        }
        self.client(id).space.host_base = base;
        Ok(Reply::Done)
    }

    fn create_context(&mut self, id: ClientId) -> Result<Reply, u32> {
        let free = self.client(id).contexts.iter().position(Option::is_none);
        let slot = free.ok_or(OUT_OF_MEMORY)?;
        let context = Context {
            id: self.gpu.create_context(),
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
        self.gpu
            .destroy_context(now_ns, context.id)
            .map_err(|_| INVALID_CONTEXT)?;
        let client = self.client(id);
        let freed_bytes = client.space.device.free_context(slot);
        let mut gone = Vec::new();
        let mut must_ring = false;
        for stream_slot in client.streams_of(slot) {
            let Some(stream) = client.streams[stream_slot as usize].take() else {
                continue;
            };
            gone.push(stream.id);
            // Nobody must wait for what was forgotten.
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
        self.used_bytes -= freed_bytes;
        Ok(Reply::Done)
    }

    fn allocate(&mut self, id: ClientId, context: u32, asked_bytes: u64) -> Result<Reply, u32> {
        let total_bytes = self.gpu.device().memory_bytes;
        let used_bytes = self.used_bytes;
        let client = self.client(id);
        if client.contexts[context as usize].is_none() {
            return Err(INVALID_CONTEXT);
        }
        if asked_bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let address = rounded_bytes(asked_bytes)
            .filter(|&bytes| bytes <= total_bytes - used_bytes)
            .and_then(|bytes| Some((client.space.device.allocate(context, bytes)?, bytes)));
        let label = client.label.clone();
        let counters = self.labels.of(&label);
        let Some((address, bytes)) = address else {
            counters.allocations_refused += 1;
            return Err(OUT_OF_MEMORY);
        };
        counters.allocations += 1;
        counters.allocated_bytes += asked_bytes;
        self.used_bytes += bytes;
        Ok(Reply::Allocated { address })
    }

    fn free(&mut self, id: ClientId, address: u64) -> Result<Reply, u32> {
        let client = self.client(id);
        let bytes = client.space.device.free(address).ok_or(INVALID_VALUE)?;
        let label = client.label.clone();
        self.labels.of(&label).frees += 1;
        self.used_bytes -= bytes;
        Ok(Reply::Done)
    }

    fn memory_info(&self) -> Reply {
        let total_bytes = self.gpu.device().memory_bytes;
        Reply::Memory {
            free_bytes: total_bytes - self.used_bytes,
            total_bytes,
        }
    }
}
