//! Which job runs on which GPU: placement as pure code.
