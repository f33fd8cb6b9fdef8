//! Kernel launches.

use core::ffi::{c_uint, c_void};
use core::{ptr, slice};

use abi::types::{
    CUDA_LAUNCH_PARAMS, CUfunction, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchConfig,
    CUresult, CUstream,
};

use super::hook;
use crate::driver::real;
use crate::kernels::Shape;
use crate::launch::{Begun, Request, begin, end};
use crate::process::{Client, priority};
use crate::progress::stream::{Flavour, Stream};

/// Most attributes of a launch to which one is added; a header of CUDA 13 names 16 kinds.
const ATTRIBUTES_MAX: usize = 24;

/// Most launches of one call on several devices; each has its own client.
const LAUNCHES_MAX: usize = 32;

/// Defines `cuLaunchKernel` in one flavour. `$extended` is the entry point that takes attributes.
macro_rules! launch_kernel {
    ($name:ident, $extended:ident, $flavour:expr) => {
        hook! {
            $name(
                function: CUfunction,
                grid_x: c_uint,
                grid_y: c_uint,
                grid_z: c_uint,
                block_x: c_uint,
                block_y: c_uint,
                block_z: c_uint,
                shared_bytes: c_uint,
                stream: CUstream,
                parameters: *mut *mut c_void,
                extra: *mut *mut c_void,
            );
            before |client| begin(client, &Request {
                function,
                shape: Shape {
                    grid: [grid_x, grid_y, grid_z],
                    block: [block_x, block_y, block_z],
                    shared_bytes,
                },
                stream: Stream::of(stream, $flavour),
                may_time: true,
            });
            call |begun, real| {
                let extended = begun
                    .and_then(Begun::priority)
                    .zip(real::entry_point(abi::id::$extended));
                let plain = || {
                    // SAFETY: the application's own arguments, passed on.
                    unsafe {
                        real(
                            function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                            shared_bytes, stream, parameters, extra,
                        )
                    }
                };
                if let Some((priority, extended)) = extended {
                    let mut attribute = CUlaunchAttribute::priority(priority);
                    let config = CUlaunchConfig {
                        grid_dim_x: grid_x,
                        grid_dim_y: grid_y,
                        grid_dim_z: grid_z,
                        block_dim_x: block_x,
                        block_dim_y: block_y,
                        block_dim_z: block_z,
                        shared_mem_bytes: shared_bytes,
                        stream,
                        attrs: &raw mut attribute,
                        num_attrs: 1,
                    };
                    // SAFETY: the driver's function of this type, the application's own arguments
                    // and a configuration that outlives the call.
                    let result = unsafe {
                        extended_of(extended)(&raw const config, function, parameters, extra)
                    };
                    without_ours(begun, result, plain)
                } else {
                    plain()
                }
            };
            after |_, begun, result| end(begun, result);
        }
    };
}

launch_kernel!(cuLaunchKernel, cuLaunchKernelEx, Flavour::Plain);
launch_kernel!(
    cuLaunchKernel_ptsz,
    cuLaunchKernelEx_ptsz,
    Flavour::PerThread
);

macro_rules! launch_kernel_ex {
    ($name:ident, $flavour:expr) => {
        hook! {
            $name(
                config: *const CUlaunchConfig,
                function: CUfunction,
                parameters: *mut *mut c_void,
                extra: *mut *mut c_void,
            );
            before |client| {
                // SAFETY: the application's configuration, valid for the call, or null.
                match unsafe { config.as_ref() } {
                    Some(config) => {
                        let mut request = request_of(config, function, $flavour);
                        if client.is_some_and(|client| client.is_recording) {
                            // SAFETY: the application's configuration with its attributes.
                            request.may_time = !unsafe { is_programmatic(config) };
                        }
                        begin(client, &request)
                    }
                    None => Begun::Unmanaged,
                }
            };
            call |begun, real| {
                let mut room = [CUlaunchAttribute::priority(0); ATTRIBUTES_MAX];
                let own = begun
                    .and_then(Begun::priority)
                    // SAFETY: the application's configuration and attributes, or null.
                    .and_then(|priority| unsafe { with_priority(config, priority, &mut room) });
                // SAFETY: the application's own arguments.
                let plain = || unsafe { real(config, function, parameters, extra) };
                match own {
                    None => plain(),
                    Some(own) => {
                        // SAFETY: the application's own arguments, and its configuration with one
                        // more attribute, which outlives the call.
                        let result = unsafe { real(&raw const own, function, parameters, extra) };
                        without_ours(begun, result, plain)
                    }
                }
            };
            after |_, begun, result| end(begun, result);
        }
    };
}

launch_kernel_ex!(cuLaunchKernelEx, Flavour::Plain);
launch_kernel_ex!(cuLaunchKernelEx_ptsz, Flavour::PerThread);

/// Defines `cuLaunchCooperativeKernel` in one flavour. It carries no priority: all its blocks run
/// at once or not at all, so a priority would not start them earlier.
macro_rules! launch_cooperative {
    ($name:ident, $flavour:expr) => {
        hook! {
            $name(
                function: CUfunction,
                grid_x: c_uint,
                grid_y: c_uint,
                grid_z: c_uint,
                block_x: c_uint,
                block_y: c_uint,
                block_z: c_uint,
                shared_bytes: c_uint,
                stream: CUstream,
                parameters: *mut *mut c_void,
            );
            before |client| begin(client, &Request {
                function,
                shape: Shape {
                    grid: [grid_x, grid_y, grid_z],
                    block: [block_x, block_y, block_z],
                    shared_bytes,
                },
                stream: Stream::of(stream, $flavour),
                may_time: true,
            });
            after |_, begun, result| end(begun, result);
        }
    };
}

launch_cooperative!(cuLaunchCooperativeKernel, Flavour::Plain);
launch_cooperative!(cuLaunchCooperativeKernel_ptsz, Flavour::PerThread);

hook! {
    cuLaunchCooperativeKernelMultiDevice(
        launches: *mut CUDA_LAUNCH_PARAMS,
        count: c_uint,
        flags: c_uint,
    );
    // SAFETY: the application's list, valid for the call, or null.
    before |client| unsafe { begin_each(client, launches, count) };
    after |_, begun, result| begun.iter().for_each(|begun| end(begun, result));
}

/// Each is a launch on its own stream, and so on that stream's device. Launches beyond
/// [`LAUNCHES_MAX`] pass unjudged. Safety: `launches` is null or a list of `count` launches.
unsafe fn begin_each(
    client: Option<&'static Client>,
    launches: *const CUDA_LAUNCH_PARAMS,
    count: c_uint,
) -> [Begun; LAUNCHES_MAX] {
    let mut begun = [const { Begun::Unmanaged }; LAUNCHES_MAX];
    if launches.is_null() {
        return begun;
    }
    for (index, begun) in begun.iter_mut().enumerate().take(count as usize) {
        // SAFETY: as the caller promises.
        let params = unsafe { launches.add(index).read() };
        let request = Request {
            function: params.function,
            shape: Shape {
                grid: [params.grid_dim_x, params.grid_dim_y, params.grid_dim_z],
                block: [params.block_dim_x, params.block_dim_y, params.block_dim_z],
                shared_bytes: params.shared_mem_bytes,
            },
            stream: Stream::of(params.stream, Flavour::Plain),
            may_time: false,
        };
        *begun = begin(client, &request);
    }
    begun
}

/// The result of a launch with our priority. If the priority may be why it was refused, the
/// application's own call decides; if that succeeds, we stop adding priorities.
fn without_ours(
    begun: Option<&Begun>,
    result: CUresult,
    plain: impl FnOnce() -> CUresult,
) -> CUresult {
    if !priority::may_be_why(result) {
        return result;
    }
    let result = plain();
    if let Some(begun) = begun.filter(|_| result == CUresult::SUCCESS) {
        begun.give_up_priority();
    }
    result
}

type Extended = unsafe extern "C-unwind" fn(
    *const CUlaunchConfig,
    CUfunction,
    *mut *mut c_void,
    *mut *mut c_void,
) -> CUresult;

/// Safety: the address is that of `cuLaunchKernelEx` in either flavour.
unsafe fn extended_of(address: ptr::NonNull<c_void>) -> Extended {
    // SAFETY: as the caller promises.
    unsafe { core::mem::transmute::<*mut c_void, Extended>(address.as_ptr()) }
}

fn request_of(config: &CUlaunchConfig, function: CUfunction, flavour: Flavour) -> Request {
    Request {
        function,
        shape: Shape {
            grid: [config.grid_dim_x, config.grid_dim_y, config.grid_dim_z],
            block: [config.block_dim_x, config.block_dim_y, config.block_dim_z],
            shared_bytes: config.shared_mem_bytes,
        },
        stream: Stream::of(config.stream, flavour),
        may_time: true,
    }
}

/// Whether the launch may begin before its predecessor ends, or its successor before it ends.
/// Safety: `config` has `num_attrs` attributes.
unsafe fn is_programmatic(config: &CUlaunchConfig) -> bool {
    // SAFETY: as the caller promises.
    let mut given = unsafe { attributes_of(config) }.iter();
    given.any(|attribute| match attribute.id {
        CUlaunchAttributeID::PROGRAMMATIC_STREAM_SERIALIZATION => attribute.value.as_int() != 0,
        CUlaunchAttributeID::PROGRAMMATIC_EVENT => true,
        _ => false,
    })
}

/// Safety: `config` has `num_attrs` attributes.
unsafe fn attributes_of(config: &CUlaunchConfig) -> &[CUlaunchAttribute] {
    if config.num_attrs == 0 || config.attrs.is_null() {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { slice::from_raw_parts(config.attrs.cast_const(), config.num_attrs as usize) }
}

/// The configuration with a priority, its attributes in `room`. `None`: unchanged, because it has a
/// priority already, is cooperative, or has more attributes than there is room for. Safety:
/// `config` is null or valid, with `num_attrs` attributes.
unsafe fn with_priority(
    config: *const CUlaunchConfig,
    priority: i32,
    room: &mut [CUlaunchAttribute; ATTRIBUTES_MAX],
) -> Option<CUlaunchConfig> {
    // SAFETY: as the caller promises.
    let mut config = unsafe { config.as_ref() }.copied()?;
    // A copy, as `config` is written below.
    let application = config;
    // SAFETY: as the caller promises.
    let given = unsafe { attributes_of(&application) };
    let stays = |attribute: &CUlaunchAttribute| match attribute.id {
        CUlaunchAttributeID::PRIORITY => true,
        CUlaunchAttributeID::COOPERATIVE => attribute.value.as_int() != 0,
        _ => false,
    };
    if given.iter().any(stays) {
        return None;
    }
    room.get_mut(..given.len())?.copy_from_slice(given);
    *room.get_mut(given.len())? = CUlaunchAttribute::priority(priority);
    config.attrs = room.as_mut_ptr();
    config.num_attrs = c_uint::try_from(given.len()).ok()? + 1;
    Some(config)
}

#[cfg(test)]
mod tests {
    use abi::types::CUlaunchAttributeValue;

    use super::*;

    fn config(attributes: &mut [CUlaunchAttribute]) -> CUlaunchConfig {
        CUlaunchConfig {
            grid_dim_x: 1,
            grid_dim_y: 2,
            grid_dim_z: 3,
            block_dim_x: 4,
            block_dim_y: 5,
            block_dim_z: 6,
            shared_mem_bytes: 7,
            stream: CUstream::NULL,
            attrs: attributes.as_mut_ptr(),
            num_attrs: attributes.len() as c_uint,
        }
    }

    fn attribute(id: CUlaunchAttributeID, value: i32) -> CUlaunchAttribute {
        CUlaunchAttribute {
            id,
            pad: [0; 4],
            value: CUlaunchAttributeValue::from_int(value),
        }
    }

    #[test]
    fn a_launch_that_overlaps_its_neighbour_is_known_by_its_attributes() {
        let serialized = CUlaunchAttributeID::PROGRAMMATIC_STREAM_SERIALIZATION;
        for (attributes, expected) in [
            (vec![], false),
            (vec![attribute(serialized, 0)], false),
            (vec![attribute(serialized, 1)], true),
            (
                vec![attribute(CUlaunchAttributeID::PROGRAMMATIC_EVENT, 0)],
                true,
            ),
            (vec![CUlaunchAttribute::priority(1)], false),
        ] {
            let mut attributes = attributes;
            let config = config(&mut attributes);
            // SAFETY: a valid configuration with its attributes.
            assert_eq!(unsafe { is_programmatic(&config) }, expected);
        }
    }

    fn prioritised(given: &mut [CUlaunchAttribute]) -> Option<Vec<CUlaunchAttribute>> {
        let mut room = [CUlaunchAttribute::priority(0); ATTRIBUTES_MAX];
        let config = config(given);
        // SAFETY: a valid configuration with its attributes.
        let own = unsafe { with_priority(&raw const config, -5, &mut room) }?;
        assert_eq!(own.shared_mem_bytes, 7);
        Some(room[..own.num_attrs as usize].to_vec())
    }

    #[test]
    fn a_priority_is_added_behind_what_is_there() {
        let fields = attribute(CUlaunchAttributeID::PROGRAMMATIC_STREAM_SERIALIZATION, 1);
        let own = prioritised(&mut [fields]).unwrap();
        assert_eq!(own, [fields, CUlaunchAttribute::priority(-5)]);
        assert_eq!(prioritised(&mut []).unwrap().len(), 1);
    }

    #[test]
    fn the_applications_own_priority_and_cooperative_launches_stay_as_they_are() {
        assert_eq!(prioritised(&mut [CUlaunchAttribute::priority(0)]), None);
        let cooperative = CUlaunchAttributeID::COOPERATIVE;
        assert_eq!(prioritised(&mut [attribute(cooperative, 1)]), None);
        assert!(prioritised(&mut [attribute(cooperative, 0)]).is_some());
    }

    #[test]
    fn more_attributes_than_there_is_room_for_stay_as_they_are() {
        let ignored = attribute(CUlaunchAttributeID::IGNORE, 0);
        assert!(prioritised(&mut [ignored; ATTRIBUTES_MAX - 1]).is_some());
        assert_eq!(prioritised(&mut [ignored; ATTRIBUTES_MAX]), None);
    }

    #[test]
    fn no_configuration_is_passed_on_as_it_is() {
        let mut room = [CUlaunchAttribute::priority(0); ATTRIBUTES_MAX];
        // SAFETY: null is allowed.
        assert_eq!(unsafe { with_priority(ptr::null(), -5, &mut room) }, None);
    }
}
