//! Readers of recorded clusters and jobs: a module for each published form.
