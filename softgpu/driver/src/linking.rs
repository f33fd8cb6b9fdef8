//! Linking: the result is an image with all inputs' contents. A single cubin is copied unchanged.
//! Otherwise the result is a PTX text that declares the kernels and variables of all inputs: names,
//! parameters, static shared memory and limits on threads survive, registers do not.

use std::collections::HashMap;
use std::fs;

use abi::types::{CUjitInputType, CUresult};
use softgpu::code::{self, Code, Extent, Kind};

use crate::driver::Driver;
use crate::images::LoadError;

pub(crate) type Linkings = HashMap<u64, Linking>;

#[derive(Debug, Default)]
pub(crate) struct Linking {
    inputs: Vec<Input>,
    /// The result, which lives as long as the linking.
    image: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Input {
    code: Code,
    /// The bytes of a cubin.
    cubin: Option<Vec<u8>>,
}

impl Driver {
    pub(crate) fn create_linking(&self) -> Result<u64, CUresult> {
        self.current()?;
        let mut tables = self.tables.lock();
        let handle = tables.new_handle();
        tables.linkings.insert(handle, Linking::default());
        Ok(handle)
    }

    pub(crate) fn destroy_linking(&self, handle: u64) -> Result<(), CUresult> {
        let removed = self.tables.lock().linkings.remove(&handle);
        removed.map(|_| ()).ok_or(CUresult::INVALID_HANDLE)
    }

    pub(crate) fn check_linking(&self, handle: u64) -> Result<(), CUresult> {
        let known = self.tables.lock().linkings.contains_key(&handle);
        known.then_some(()).ok_or(CUresult::INVALID_HANDLE)
    }

    pub(crate) fn link_data(
        &self,
        handle: u64,
        kind: CUjitInputType,
        bytes: &[u8],
    ) -> Result<(), LoadError> {
        self.check_linking(handle)?;
        let input = match kind {
            CUjitInputType::PTX => Input {
                code: code::parse_ptx(text(bytes)?, self.capability())?,
                cubin: None,
            },
            CUjitInputType::CUBIN | CUjitInputType::OBJECT => Input {
                code: code::parse(Kind::Cubin, bytes, self.capability())?,
                cubin: Some(bytes.to_vec()),
            },
            CUjitInputType::FATBINARY => {
                let Extent::Whole(Kind::Fatbin, _) = code::extent(bytes)? else {
                    return Err(CUresult::INVALID_IMAGE.into());
                };
                Input {
                    code: code::parse(Kind::Fatbin, bytes, self.capability())?,
                    cubin: None,
                }
            }
            CUjitInputType::LIBRARY | CUjitInputType::NVVM => {
                self.link.count_not_supported();
                return Err(CUresult::NOT_SUPPORTED.into());
            }
            _ => return Err(CUresult::INVALID_VALUE.into()),
        };
        let mut tables = self.tables.lock();
        let linking = tables.linkings.get_mut(&handle);
        let linking = linking.ok_or(CUresult::INVALID_HANDLE)?;
        linking.inputs.push(input);
        Ok(())
    }

    /// As [`Self::link_data`], from a file.
    pub(crate) fn link_file(
        &self,
        handle: u64,
        kind: CUjitInputType,
        path: &str,
    ) -> Result<(), LoadError> {
        self.check_linking(handle)?;
        let bytes = fs::read(path).map_err(|_| CUresult::FILE_NOT_FOUND)?;
        self.link_data(handle, kind, &bytes)
    }

    /// Address and size of the result. It lives until the linking is destroyed.
    pub(crate) fn complete_linking(&self, handle: u64) -> Result<(usize, usize), CUresult> {
        let capability = self.capability();
        let mut tables = self.tables.lock();
        let linking = tables.linkings.get_mut(&handle);
        let linking = linking.ok_or(CUresult::INVALID_HANDLE)?;
        let Linking { inputs, image } = linking;
        let image = image.get_or_insert_with(|| match inputs.as_slice() {
            [
                Input {
                    cubin: Some(cubin), ..
                },
            ] => cubin.clone(),
            inputs => {
                let codes = inputs.iter().map(|input| &input.code);
                let mut text = code::write_ptx(codes, capability).into_bytes();
                text.push(0);
                text
            }
        });
        Ok((image.as_ptr().addr(), image.len()))
    }
}

fn text(bytes: &[u8]) -> Result<&str, CUresult> {
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    std::str::from_utf8(text).map_err(|_| CUresult::INVALID_PTX)
}
