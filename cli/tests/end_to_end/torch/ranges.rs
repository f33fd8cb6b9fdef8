//! A service's requests are the ranges that it marks by `torch.cuda.nvtx`.

use protocol::hello::JobClass;

use super::{Scenario, Stage, python};
use crate::common::{Cuda, until};

#[test]
fn each_range_of_a_service_is_a_request_beside_a_training() {
    let stage = Stage::new(python(Cuda::V13));
    let training = stage.under_pillion(Scenario::of("train_mlp"), JobClass::BestEffort);
    let training = training.start();
    let class = JobClass::HighPriority;
    let service = stage.under_pillion(Scenario::of("ranges"), class);
    let mut service = service.env("PILLION_REQUEST_RANGE", "request *").start();
    service.wait_whenever("served");
    let told = |name: &str| stage.job(class)["totals"][name].as_u64();
    until("each request to be read", || {
        (told("requests_marked") >= Some(40)).then_some(())
    });
    assert_eq!(told("requests_marked"), Some(40));
    assert_eq!(stage.job(class)["requests_source"], "nvtx");
    service.finish_whenever().expect_success();
    training.finish_whenever().expect_success();
}
