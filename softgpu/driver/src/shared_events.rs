//! Events shared between processes: of `CU_EVENT_INTERPROCESS`, and from `cuIpcOpenEventHandle`.
//! Such an event is some words of device memory (`softgpu::wire::SharedEvent`), which each process
//! has at an address of its own. The server counts a record during the call, so that other
//! processes see it from then on; the stream writes the record's number when it reaches it. As with
//! memory, a handle keeps nothing alive: an event can be opened while some process has it.

use abi::types::{CUevent_flags, CUipcEventHandle, CUresult};
use softgpu::wire::{MemoryRequest, SharedEvent, Until, Work};

use crate::driver::Driver;
use crate::holdings::EndedEvent;
use crate::link::device_of_address;
use crate::physical::Token;
use crate::tables::{Event, Point, Stream};

/// The flags that CUDA requires of a shared event.
const FLAGS: u32 = CUevent_flags::INTERPROCESS.0 | CUevent_flags::DISABLE_TIMING.0;
/// Device time between two polls for a record of another process.
const LOOK_NS: u64 = 20_000;
/// "softgpue", at the head of a handle.
const MAGIC: [u8; 8] = *b"softgpue";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    event: SharedEvent,
    is_opened: bool,
    /// Number of this process's last record; 0 if there is none.
    own_last: u64,
}

impl Driver {
    pub(crate) fn new_words(&self, flags: u32) -> Result<Words, CUresult> {
        if flags & FLAGS != FLAGS {
            return Err(CUresult::INVALID_VALUE);
        }
        self.free_ended_words();
        let (_, context) = self.current()?;
        let request = MemoryRequest::AllocateVariable {
            context: context.local_slot(),
            bytes: SharedEvent::BYTES,
        };
        let [address, ..] = self.ask(context.device, request)?;
        Ok(Words {
            event: SharedEvent { address },
            is_opened: false,
            own_last: 0,
        })
    }

    pub(crate) fn ipc_event_handle(&self, handle: u64) -> Result<CUipcEventHandle, CUresult> {
        self.current()?;
        let words = self.event(handle)?.shared;
        // An opened event cannot be exported again.
        let words = words.filter(|words| !words.is_opened);
        let address = words.ok_or(CUresult::INVALID_HANDLE)?.event.address;
        let request = MemoryRequest::ExportAddress { address };
        let token = Token::of(self.ask(device_of_address(address), request)?);
        let mut reserved = [0; 64];
        for (to, byte) in reserved.iter_mut().zip(token.encode(MAGIC)) {
            *to = byte as std::ffi::c_char;
        }
        Ok(CUipcEventHandle { reserved })
    }

    pub(crate) fn open_ipc_event(&self, handle: &CUipcEventHandle) -> Result<u64, CUresult> {
        let (_, context) = self.current()?;
        let bytes = std::array::from_fn(|i| handle.reserved[i] as u8);
        let token = Token::decode(&bytes, MAGIC).ok_or(CUresult::INVALID_HANDLE)?;
        self.free_ended_words();
        let answer = self.ask(context.device, token.open(context.local_slot()));
        let [address, ..] = answer.map_err(|error| match error {
            CUresult::INVALID_VALUE => CUresult::INVALID_HANDLE,
            other => other,
        })?;
        let words = Words {
            event: SharedEvent { address },
            is_opened: true,
            own_last: 0,
        };
        self.add_event(FLAGS, Some(words))
    }

    /// Counts a record, and makes the stream write its number; returns its point in the stream.
    pub(crate) fn record_shared(
        &self,
        handle: u64,
        words: Words,
        stream: &Stream,
    ) -> Result<Point, CUresult> {
        let address = words.event.address;
        let number = loop {
            match self.ask(
                device_of_address(address),
                MemoryRequest::CountRecord { address },
            ) {
                Ok([number, ..]) => break number,
                Err(CUresult::NOT_READY) => self.link.sleep(LOOK_NS),
                Err(error) => return Err(error),
            }
        };
        let write = Work::WriteValue {
            to: words.event.word_of(number),
            width_bytes: 8,
            value: number,
        };
        let point = self.submit(stream, write)?;
        if let Some(event) = self.tables.lock().events.get_mut(&handle)
            && let Some(words) = &mut event.shared
        {
            words.own_last = number;
        }
        Ok(point)
    }

    /// Lets a stream wait for a shared event's last record, of any process.
    pub(crate) fn wait_shared(
        &'static self,
        stream: &Stream,
        words: Words,
    ) -> Result<(), CUresult> {
        let Some(number) = self.awaited(words)? else {
            return Ok(());
        };
        let device = device_of_address(words.event.address);
        if device != self.context(stream.context)?.device {
            // A server that has ended reports nothing more; then the stream need not wait either.
            return self.wait_across(stream, move || {
                let _ = self.reach(words, number);
            });
        }
        let wait = Work::WaitValue {
            at: words.event.word_of(number),
            width_bytes: 8,
            value: number,
            until: Until::GreaterOrEqual,
        };
        self.submit(stream, wait).map(drop)
    }

    pub(crate) fn synchronise_shared(&self, event: &Event, words: Words) -> Result<(), CUresult> {
        match (self.awaited(words)?, event.last) {
            (None, _) => Ok(()),
            (Some(number), Some(own)) if number == words.own_last => {
                self.link.wait(own.stream, own.seq)
            }
            (Some(number), _) => self.reach(words, number),
        }
    }

    pub(crate) fn query_shared(&self, words: Words) -> Result<(), CUresult> {
        match self.awaited(words)? {
            None => Ok(()),
            Some(_) => Err(CUresult::NOT_READY),
        }
    }

    /// Frees an event's words once everything that this process has put on streams is complete.
    pub(crate) fn end_words(&self, context: u64, words: Words) {
        let mut tables = self.tables.lock();
        let behind = tables.slots.incomplete(&self.link);
        let Words {
            event, is_opened, ..
        } = words;
        tables.holdings.ended_events.push(EndedEvent {
            context,
            address: event.address,
            is_opened,
            behind,
        });
        drop(tables);
        self.free_ended_words();
    }

    fn free_ended_words(&self) {
        let is_complete = |ended: &EndedEvent| {
            let mut behind = ended.behind.iter();
            behind.all(|point| self.link.is_complete(point.stream, point.seq))
        };
        let ended: Vec<EndedEvent> = {
            let mut tables = self.tables.lock();
            let events = &mut tables.holdings.ended_events;
            events.extract_if(.., |ended| is_complete(ended)).collect()
        };
        for EndedEvent {
            address, is_opened, ..
        } in ended
        {
            let request = if is_opened {
                MemoryRequest::CloseShared { address }
            } else {
                MemoryRequest::FreeVariable { address }
            };
            let _ = self.ask(device_of_address(address), request);
        }
    }

    /// The number of the last record, if it has not been reached.
    fn awaited(&self, words: Words) -> Result<Option<u64>, CUresult> {
        let (number, is_reached) = self.record_state(words, 0)?;
        Ok((!is_reached).then_some(number))
    }

    fn reach(&self, words: Words, number: u64) -> Result<(), CUresult> {
        while !self.record_state(words, number)?.1 {
            self.link.sleep(LOOK_NS);
        }
        Ok(())
    }

    /// A record's number, and whether it was reached; 0 stands for the last record.
    fn record_state(&self, words: Words, number: u64) -> Result<(u64, bool), CUresult> {
        let address = words.event.address;
        let request = MemoryRequest::RecordState { address, number };
        let [number, is_reached, ..] = self.ask(device_of_address(address), request)?;
        Ok((number, is_reached != 0))
    }
}
