//! The functions of cuBLASLt, as its library gives them.

use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;

use cudarc::cublaslt::sys as declared;
use cudarc::cublaslt::sys::{
    cublasComputeType_t as Compute, cublasLtHandle_t, cublasLtMatmulAlgo_t,
    cublasLtMatmulAlgoConfigAttributes_t as AlgoAttribute, cublasLtMatmulDesc_t,
    cublasLtMatmulDescAttributes_t as DescAttribute, cublasLtMatmulHeuristicResult_t,
    cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t as PrefAttribute,
    cublasLtMatrixLayout_t, cudaDataType, cudaStream_t,
};

use super::library::{Opened, functions};
use super::nvrtc::Version;

functions! {
    struct Functions: cublasStatus_t;
    status {
        fn cublasLtCreate(*mut cublasLtHandle_t);
        fn cublasLtDestroy(cublasLtHandle_t);
        fn cublasLtMatmulDescCreate(*mut cublasLtMatmulDesc_t, Compute, cudaDataType);
        fn cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, DescAttribute, *const c_void, usize);
        fn cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t);
        fn cublasLtMatrixLayoutCreate(*mut cublasLtMatrixLayout_t, cudaDataType, u64, u64, i64);
        fn cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t);
        fn cublasLtMatmulPreferenceCreate(*mut cublasLtMatmulPreference_t);
        fn cublasLtMatmulPreferenceSetAttribute(
            cublasLtMatmulPreference_t, PrefAttribute, *const c_void, usize
        );
        fn cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t);
        fn cublasLtMatmulAlgoGetHeuristic(
            cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
            cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, c_int,
            *mut cublasLtMatmulHeuristicResult_t, *mut c_int
        );
        fn cublasLtMatmul(
            cublasLtHandle_t, cublasLtMatmulDesc_t, *const c_void, *const c_void,
            cublasLtMatrixLayout_t, *const c_void, cublasLtMatrixLayout_t, *const c_void,
            *const c_void, cublasLtMatrixLayout_t, *mut c_void, cublasLtMatrixLayout_t,
            *const cublasLtMatmulAlgo_t, *mut c_void, usize, cudaStream_t
        );
    }
    plain {
        fn cublasLtGetVersion() -> usize;
        // Declared with an `enum` for the status, which numbers of newer libraries don't fit.
        fn cublasLtGetStatusString(u32) -> *const c_char;
    }
    optional {
        fn cublasLtMatmulAlgoCheck(
            cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
            cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, *const cublasLtMatmulAlgo_t,
            *mut cublasLtMatmulHeuristicResult_t
        );
        fn cublasLtMatmulAlgoConfigGetAttribute(
            *const cublasLtMatmulAlgo_t, AlgoAttribute, *mut c_void, usize, *mut usize
        );
    }
}

/// The library.
#[derive(Clone)]
pub(super) struct CublasLt {
    pub functions: Functions,
    pub version: Version,
    pub path: PathBuf,
}

impl CublasLt {
    /// That of a library; the reason where it can't be used.
    pub fn of(library: &Opened) -> std::result::Result<Self, String> {
        let functions =
            Functions::of(library).map_err(|name| format!("it has no function {name}"))?;
        // SAFETY: takes nothing, returns a number.
        let number = unsafe { (functions.cublasLtGetVersion)() };
        // 130002 is 13.0.2, since version 12.
        let part = |unit: usize| (number / unit % 100) as u32;
        Ok(Self { functions, version: (part(10_000), part(100)), path: library.path.clone() })
    }
}
