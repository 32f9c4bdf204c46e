//! Matrix products by cuBLASLt.
//!
//! cuBLASLt counts by columns, so a row-major `c = a b` is asked for as `cᵀ = bᵀ aᵀ`
//! ([`description`]). Sums are f32 in every algorithm that it may pick: split sums are added in f32
//! too, in a fixed order. Algorithms are asked for once a shape and kept. Strides and addresses of any
//! alignment that their elements have are right; 16 bytes are fast, so that logits of 30,522 words
//! want rows 30,528 apart.
//!
//! Biases are f32. cuBLASLt adds one of the result's own type while it multiplies: that is done where
//! the result is f32, and [`Epilogue::Bias`](crate::engine::cuda::device::Epilogue) of others is a
//! kernel after the product. Its GELU is the tanh form and BERT's is the exact one by erf
//! (Devlin et al. 2018 use `tf.erf`; arXiv 1606.08415 has both), so that it is never used.

pub(super) mod description;

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use cudarc::cublaslt::sys::{
    cublasComputeType_t as Compute, cublasLtEpilogue_t as Epilogue, cublasLtHandle_t,
    cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t as DescAttribute,
    cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t as PrefAttribute, cublasLtMatrixLayout_t,
    cublasLtReductionScheme_t as Reduction, cudaDataType,
};

use self::description::{Description, Layout};
use super::context::Context;
use super::cublaslt::{CublasLt, Functions};
use crate::engine::cuda::device::{Address, Element};
use crate::error::{Error, Result};

/// Scratch memory that algorithms may use: what NVIDIA recommends for Hopper.
pub(super) const WORKSPACE: u64 = 32 << 20;
/// Algorithms that are asked for; the first that will do is taken.
const ALGORITHMS: usize = 8;
/// Shapes that are remembered. Batches of packed sequences have ever new numbers of rows.
const SHAPES: usize = 1024;

/// A shape with what cuBLASLt made of it.
struct Plan {
    operation: cublasLtMatmulDesc_t,
    /// Of the left factor, the right one and the result.
    layouts: [cublasLtMatrixLayout_t; 3],
    algorithm: cublasLtMatmulAlgo_t,
}

/// Products on a device.
pub(super) struct Products {
    context: Arc<Context>,
    lt: CublasLt,
    handle: cublasLtHandle_t,
    workspace: Address,
    plans: HashMap<Description, Plan>,
}

// SAFETY: handle and descriptors may be used from any thread, one at a time.
unsafe impl Send for Products {}

impl Products {
    /// With [`WORKSPACE`] bytes at `workspace`; the context is entered.
    pub fn new(context: Arc<Context>, lt: CublasLt, workspace: Address) -> Result<Self> {
        let mut handle = ptr::null_mut();
        // SAFETY: the handle has a place.
        let status = unsafe { (lt.functions.cublasLtCreate)(&mut handle) };
        check(&lt.functions, status, || "start".into())?;
        Ok(Self {
            context,
            lt,
            handle,
            workspace,
            plans: HashMap::new(),
        })
    }

    /// Multiplies what is described, with its places: left factor, right factor, result. The context
    /// is entered.
    pub fn multiply(
        &mut self,
        description: Description,
        (left, right, result): (Address, Address, Address),
        (alpha, beta): (f32, f32),
        bias: Address,
    ) -> Result<()> {
        if !self.plans.contains_key(&description) {
            if self.plans.len() >= SHAPES {
                self.forget();
            }
            let plan = self.plan(&description)?;
            self.plans.insert(description, plan);
        }
        // Put there just now, if it wasn't.
        let plan = self.plans.get(&description).expect("a planned product");
        let f = &self.lt.functions;
        if description.bias {
            let attribute = DescAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
            // SAFETY: the operation is alive; the value is a device pointer, as the attribute wants.
            let status = unsafe { set_operation(f, plan.operation, attribute, &bias.0) };
            check(f, status, || "take a bias".into())?;
        }
        let [left_layout, right_layout, result_layout] = plan.layouts;
        let (alpha, beta) = (ptr::from_ref(&alpha), ptr::from_ref(&beta));
        // SAFETY: handle and descriptors are alive, and the factors are f32 in host memory as the
        // operation says. That the matrices lie in device memory whole is asked of callers of
        // `Device::multiply`. The result is read and written in place, which is allowed with one
        // layout. The workspace has as many bytes as it is said to have, and the stream lets only
        // one product use it at a time.
        let status = unsafe {
            (f.cublasLtMatmul)(
                self.handle,
                plan.operation,
                alpha.cast(),
                left.0 as *const c_void,
                left_layout,
                right.0 as *const c_void,
                right_layout,
                beta.cast(),
                result.0 as *const c_void,
                result_layout,
                result.0 as *mut c_void,
                result_layout,
                &plan.algorithm,
                self.workspace.0 as *mut c_void,
                WORKSPACE as usize,
                self.context.stream.cast(),
            )
        };
        if status != 0 {
            // Where the device was lost before, that is what to tell.
            self.context.synchronize()?;
        }
        check(f, status, || format!("multiply {description}"))
    }

    fn plan(&self, description: &Description) -> Result<Plan> {
        let plan = Unfinished::new(&self.lt.functions, description)?;
        let algorithm = self.algorithm(&plan, description)?;
        let (operation, layouts) = plan.into_parts();
        Ok(Plan {
            operation,
            layouts,
            algorithm,
        })
    }

    /// The first algorithm for a shape, as cuBLASLt's heuristics order them.
    fn algorithm(
        &self,
        plan: &Unfinished<'_>,
        description: &Description,
    ) -> Result<cublasLtMatmulAlgo_t> {
        let f = &self.lt.functions;
        let mut results =
            [const { MaybeUninit::<cublasLtMatmulHeuristicResult_t>::uninit() }; ALGORITHMS];
        let mut count = 0;
        let [left, right, result] = [0, 1, 2].map(|i| plan.layouts[i]);
        // SAFETY: everything is alive, and there is room for as many results as are asked for.
        let status = unsafe {
            (f.cublasLtMatmulAlgoGetHeuristic)(
                self.handle,
                plan.operation,
                left,
                right,
                result,
                result,
                plan.preference,
                ALGORITHMS as c_int,
                results.as_mut_ptr().cast(),
                &mut count,
            )
        };
        check(f, status, || {
            format!("find a way to multiply {description}")
        })?;
        let count = usize::try_from(count).unwrap_or(0).min(ALGORITHMS);
        let usable = results[..count].iter().find_map(|result| {
            let result = result.as_ptr();
            // SAFETY: the library has filled in as many results as it told. The state is read as the
            // number that it is, for newer libraries have states that the declaration lacks.
            unsafe {
                let state = (&raw const (*result).state).cast::<u32>().read();
                let fits = (&raw const (*result).workspaceSize).read() <= WORKSPACE as usize;
                (state == 0 && fits).then(|| (&raw const (*result).algo).read())
            }
        });
        usable.ok_or_else(|| {
            Error::Failed(format!("cuBLASLt knows no way to multiply {description}"))
        })
    }

    /// Destroys all plans.
    fn forget(&mut self) {
        let f = &self.lt.functions;
        for (_, plan) in self.plans.drain() {
            // SAFETY: made by `plan`, destroyed once. Products under way don't need them any more.
            unsafe {
                for layout in plan.layouts {
                    (f.cublasLtMatrixLayoutDestroy)(layout);
                }
                (f.cublasLtMatmulDescDestroy)(plan.operation);
            }
        }
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        self.forget();
        if !self.context.is_lost() && self.context.enter().is_ok() {
            let _ = self.context.synchronize();
            // SAFETY: made in `new`, destroyed once, and no product is under way.
            unsafe { (self.lt.functions.cublasLtDestroy)(self.handle) };
        }
    }
}

/// What a plan is made of, until it is whole.
struct Unfinished<'a> {
    functions: &'a Functions,
    operation: cublasLtMatmulDesc_t,
    layouts: Vec<cublasLtMatrixLayout_t>,
    preference: cublasLtMatmulPreference_t,
}

impl<'a> Unfinished<'a> {
    /// What cuBLASLt is told of a product; needs no GPU.
    fn new(f: &'a Functions, description: &Description) -> Result<Self> {
        let told = |status| check(f, status, || format!("describe {description}"));
        let compute = match description.tf32 {
            true => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
            false => Compute::CUBLAS_COMPUTE_32F,
        };
        let mut operation = ptr::null_mut();
        // SAFETY: the operation has a place.
        told(unsafe {
            (f.cublasLtMatmulDescCreate)(&mut operation, compute, cudaDataType::CUDA_R_32F)
        })?;
        // From here on dropped with what it holds where something fails.
        let mut plan = Self {
            functions: f,
            operation,
            layouts: Vec::new(),
            preference: ptr::null_mut(),
        };
        let transpositions = [
            (
                DescAttribute::CUBLASLT_MATMUL_DESC_TRANSA,
                description.left_transposed,
            ),
            (
                DescAttribute::CUBLASLT_MATMUL_DESC_TRANSB,
                description.right_transposed,
            ),
        ];
        for (attribute, transposed) in transpositions {
            // SAFETY: the operation is alive; the value is a cublasOperation_t, 0 or 1.
            told(unsafe { set_operation(f, operation, attribute, &i32::from(transposed)) })?;
        }
        if description.bias {
            let attribute = DescAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE;
            let epilogue = Epilogue::CUBLASLT_EPILOGUE_BIAS as u32;
            // SAFETY: as above; the value is a cublasLtEpilogue_t.
            told(unsafe { set_operation(f, operation, attribute, &epilogue) })?;
        }
        for layout in [description.left, description.right, description.result] {
            let Layout {
                element,
                rows,
                columns,
                leading,
            } = layout;
            let mut made = ptr::null_mut();
            // SAFETY: the layout has a place.
            told(unsafe {
                let leading = i64::try_from(leading).unwrap_or(i64::MAX);
                (f.cublasLtMatrixLayoutCreate)(
                    &mut made,
                    data_type(element),
                    rows,
                    columns,
                    leading,
                )
            })?;
            plan.layouts.push(made);
        }
        // SAFETY: the preference has a place.
        told(unsafe { (f.cublasLtMatmulPreferenceCreate)(&mut plan.preference) })?;
        let [left_bytes, right_bytes, result_bytes] = description.alignments;
        let preferences = [
            (
                PrefAttribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                Reduction::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32,
            ),
            (
                PrefAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                left_bytes,
            ),
            (
                PrefAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                right_bytes,
            ),
            (
                PrefAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                result_bytes,
            ),
            (
                PrefAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                result_bytes,
            ),
        ];
        for (attribute, value) in preferences {
            // SAFETY: the preference is alive; these attributes are uint32_t.
            told(unsafe { set_preference(f, plan.preference, attribute, &value) })?;
        }
        let attribute = PrefAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        // SAFETY: the preference is alive; this attribute is uint64_t.
        told(unsafe { set_preference(f, plan.preference, attribute, &WORKSPACE) })?;
        Ok(plan)
    }

    /// The parts that outlive the making.
    fn into_parts(mut self) -> (cublasLtMatmulDesc_t, [cublasLtMatrixLayout_t; 3]) {
        let layouts = std::mem::take(&mut self.layouts);
        let operation = std::mem::replace(&mut self.operation, ptr::null_mut());
        (operation, [layouts[0], layouts[1], layouts[2]])
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let f = self.functions;
        // SAFETY: each was made by the library, and is null or gone from here once it is given on.
        unsafe {
            for layout in self.layouts.drain(..) {
                (f.cublasLtMatrixLayoutDestroy)(layout);
            }
            if !self.operation.is_null() {
                (f.cublasLtMatmulDescDestroy)(self.operation);
            }
            if !self.preference.is_null() {
                (f.cublasLtMatmulPreferenceDestroy)(self.preference);
            }
        }
    }
}

fn data_type(element: Element) -> cudaDataType {
    match element {
        Element::F32 => cudaDataType::CUDA_R_32F,
        Element::Bf16 => cudaDataType::CUDA_R_16BF,
        Element::F16 => cudaDataType::CUDA_R_16F,
    }
}

/// Sets an attribute of an operation.
///
/// # Safety
///
/// The operation must be alive, and `V` the type that the library's documentation gives.
unsafe fn set_operation<V>(
    functions: &Functions,
    operation: cublasLtMatmulDesc_t,
    attribute: DescAttribute,
    value: &V,
) -> u32 {
    let value = ptr::from_ref(value).cast();
    // SAFETY: as asked of the caller.
    unsafe {
        (functions.cublasLtMatmulDescSetAttribute)(operation, attribute, value, size_of::<V>())
    }
}

/// Sets an attribute of a preference.
///
/// # Safety
///
/// The preference must be alive, and `V` the type that the library's documentation gives.
unsafe fn set_preference<V>(
    functions: &Functions,
    preference: cublasLtMatmulPreference_t,
    attribute: PrefAttribute,
    value: &V,
) -> u32 {
    let value = ptr::from_ref(value).cast();
    // SAFETY: as asked of the caller.
    unsafe {
        (functions.cublasLtMatmulPreferenceSetAttribute)(
            preference,
            attribute,
            value,
            size_of::<V>(),
        )
    }
}

/// A status of cuBLASLt as a sentence.
fn check(functions: &Functions, status: u32, doing: impl Fn() -> String) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: the library gives a text that lives as long as it does, or null.
    let words = unsafe {
        let words = (functions.cublasLtGetStatusString)(status);
        (!words.is_null()).then(|| CStr::from_ptr(words).to_string_lossy())
    };
    let words = words.unwrap_or_default();
    Err(Error::Failed(format!(
        "cuBLASLt could not {}: {words} (status {status})",
        doing()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cuda::device;
    use crate::engine::cuda::device::{Matrix, Product};
    use crate::engine::cuda::driver::search::{Surroundings, Wanted};

    /// NVIDIA's own library, where it is found, takes every attribute that it is given: it refuses
    /// those it doesn't know and values of a wrong size. Algorithms it tells only on a GPU.
    #[test]
    fn descriptions_are_taken_by_the_library() {
        let surroundings = Surroundings::of_process();
        let found = surroundings.find(Wanted::CublasLt, &[13, 12], |library| {
            CublasLt::of(&library)
        });
        let lt = match found {
            Ok(lt) => lt,
            Err(missing) => return eprintln!("not tested without cuBLASLt: {missing}"),
        };
        assert!(
            (12..14).contains(&lt.version.0),
            "{:?} of {:?}",
            lt.version,
            lt.path
        );
        for (element, result) in [
            (Element::F32, Element::F32),
            (Element::Bf16, Element::Bf16),
            (Element::Bf16, Element::F32),
            (Element::F16, Element::F16),
            (Element::F16, Element::F32),
        ] {
            let matrix = |rows, columns, element| Matrix::new(Address(256), element, rows, columns);
            let product = Product {
                a: matrix(3, 5, element),
                b: matrix(30_522, 5, element).t(),
                c: matrix(3, 30_522, result),
                alpha: 1.0,
                add: false,
                tf32: true,
                epilogue: device::Epilogue::Bias(Address(512)),
            };
            let description = Description::of(&product).unwrap();
            let plan = Unfinished::new(&lt.functions, &description).unwrap();
            let attribute = DescAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
            // SAFETY: the operation is alive; the address is not read here.
            let status =
                unsafe { set_operation(&lt.functions, plan.operation, attribute, &512u64) };
            assert_eq!(status, 0);
            let (operation, layouts) = plan.into_parts();
            // SAFETY: made by the library just now, destroyed once.
            unsafe {
                for layout in layouts {
                    assert_eq!((lt.functions.cublasLtMatrixLayoutDestroy)(layout), 0);
                }
                assert_eq!((lt.functions.cublasLtMatmulDescDestroy)(operation), 0);
            }
        }
        // Its words for a status.
        let error = check(&lt.functions, 7, || "test".into())
            .unwrap_err()
            .to_string();
        assert!(error.contains("unsupported value"), "{error}");
    }
}
