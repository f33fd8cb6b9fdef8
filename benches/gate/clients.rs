//! A daemon's state with simulated clients, on the pages that real ones would have.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use policy::{Class, ClassSet, Kernel, Lease, admits};
use protocol::clock::Clock;
use protocol::hello::{Attach, JobClass};
use protocol::lease::{Refusal, Terms, announce};
use protocol::pages::{ClientPage, LeasePage};
use protocol::record::{Launch, Record};
use protocol::segment::{Access, Mapping, client_page, identity};
use protocol::sync::Ordering;
use scheduler::Config;
use scheduler::core::job_key::Peer;
use scheduler::core::pages::GpuPages;
use scheduler::core::state::{NewPages, State};
use scheduler::host::pages::lease_page;

const SMS: u32 = 80;

pub(crate) struct Daemon {
    pub(crate) state: State,
    pub(crate) pages: Arc<GpuPages>,
    clock: Clock,
}

pub(crate) struct Player {
    pub(crate) page: Mapping<ClientPage>,
    pub(crate) lease: Option<Mapping<LeasePage>>,
    seq: u64,
}

impl Daemon {
    pub(crate) fn new(policy: &str) -> anyhow::Result<Self> {
        let text = format!("[gpu]\nindex = 0\nsharing = \"mps\"\n[policy]\n{policy}\n");
        let config = Config::check(Path::new("bench.toml"), &text)?;
        let clock = Clock::monotonic();
        let (pages, _fds) = GpuPages::create(&config, &clock).context("shared pages")?;
        Ok(Self {
            state: State::new(&config, SMS, Arc::clone(&pages)),
            pages,
            clock,
        })
    }

    pub(crate) fn attach(&mut self, class: JobClass, job: &str) -> anyhow::Result<Player> {
        let (fd, client) = client_page(&self.clock)?;
        let page: Mapping<ClientPage> =
            Mapping::open(&fd, Access::ReadWrite).context("the client's page")?;
        // As the library does before a thread's first record.
        page.ring_owner[0].store(1, Ordering::Relaxed);
        let attach = Attach {
            class,
            job: job.to_owned(),
            name: "bench".to_owned(),
            ..Attach::default()
        };
        let pages = NewPages {
            client,
            file: identity(&fd)?,
            lease: lease_page(&self.clock)?,
        };
        let peer = Peer { pid: 1, uid: 0 };
        let now_ns = self.clock.now_ns();
        let attached = self.state.handle_attach(now_ns, peer, attach, pages)?;
        let lease = attached.lease.as_ref();
        let lease = lease.map(|fd| Mapping::open(fd, Access::ReadWrite));
        Ok(Player {
            page,
            lease: lease.transpose().context("the lease's page")?,
            seq: 0,
        })
    }
}

impl Player {
    /// Pushes the record of a high-priority launch, without the announcement.
    #[inline]
    pub(crate) fn push(&mut self, expected_ns: u64) -> bool {
        self.seq += 1;
        let record = Record::Launch(Launch {
            stream: 0,
            seq: self.seq,
            kernel: 1,
            expected_ns,
            sm_needed: SMS,
            class: Class::Compute.bits() as u8,
            at_ns: 0,
        });
        self.page.rings[0].push(&record.encode()).is_ok()
    }

    #[inline]
    pub(crate) fn launch(&mut self, pages: &GpuPages, expected_ns: u64) -> bool {
        let is_pushed = self.push(expected_ns);
        announce(&pages.daemon, &pages.hp);
        is_pushed
    }

    #[inline]
    pub(crate) fn complete(&self) -> bool {
        let record = Record::Complete {
            stream: 0,
            seq: self.seq,
            at_ns: 0,
        };
        self.page.rings[0].push(&record.encode()).is_ok()
    }

    #[inline]
    pub(crate) fn try_launch(
        &self,
        pages: &GpuPages,
        now_ns: u64,
        kernel: &Kernel,
    ) -> Result<Terms, Refusal> {
        let Some(lease) = &self.lease else {
            return Err(Refusal::NotAdmitted);
        };
        let cost_ns = kernel.expected_ns;
        let charged_ns = &self.page.charged_ns;
        lease.try_charge(charged_ns, &pages.hp, now_ns, cost_ns, |terms, left_ns| {
            admits(&lease_of(terms, left_ns), 0, kernel)
        })
    }

    #[inline]
    pub(crate) fn drain(&self) {
        let charged_ns = self.page.charged_ns.load(Ordering::Relaxed);
        self.page.completed_ns.store(charged_ns, Ordering::Relaxed);
    }
}

fn lease_of(terms: &Terms, budget_ns: u64) -> Lease {
    Lease {
        epoch: terms.epoch,
        expiry_ns: terms.expiry_ns,
        classes: ClassSet::from_bits_truncate(terms.class_bits()),
        sms_max: terms.sms_max,
        budget_ns,
        beside_hp: terms.beside_hp(),
        whole: terms.whole(),
        standing: terms.standing(),
        ungated: terms.ungated(),
    }
}
