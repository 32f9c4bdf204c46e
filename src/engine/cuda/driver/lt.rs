//! Matrix products with cuBLASLt.
//!
//! cuBLASLt is column-major, so a row-major `c = a b` becomes `cᵀ = bᵀ aᵀ` ([`description`]). Every
//! algorithm it may choose sums in f32; split sums are added in f32 too, in a fixed order.
//! Algorithms are chosen once per shape. Any alignment that fits the elements is
//! correct, but 16 bytes are fast, so logits of 30,522 words have rows 30,528 apart.
//!
//! cuBLASLt adds a bias of the result's own type; one in f32 to a result in 16 bits is added by a kernel after the
//! product ([`Epilogue::Bias`](crate::engine::cuda::device::Epilogue)). Its GELU is the tanh form, which is never used:
//! BERT's is the exact one by erf (Devlin et al. 2018 use `tf.erf`; arXiv 1606.08415 has both).

pub(super) mod description;

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use cudarc::cublaslt::sys::{
    cublasComputeType_t as Compute, cublasLtEpilogue_t as Epilogue, cublasLtHandle_t,
    cublasLtMatmulAlgo_t, cublasLtMatmulAlgoConfigAttributes_t as AlgoAttribute,
    cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t as DescAttribute,
    cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t as PrefAttribute, cublasLtMatrixLayout_t,
    cublasLtReductionScheme_t as Reduction, cudaDataType,
};

use self::description::{Description, Layout};
use super::context::Context;
use super::cublaslt::{CublasLt, Functions};
use crate::engine::cuda::device::{Address, Element};
use crate::error::{Error, Result};

/// Scratch memory for algorithms: NVIDIA recommends 32 MiB for Hopper, but some of those that split sums need more.
pub(super) const WORKSPACE: u64 = 256 << 20;
/// Number of candidate algorithms.
const ALGORITHMS: usize = 8;
/// Maximum number of stored shapes. Batches of packed sequences keep having new numbers of rows.
const SHAPES: usize = 1024;

/// A shape with cuBLASLt's descriptors and algorithm.
struct Plan {
    operation: cublasLtMatmulDesc_t,
    /// Layouts of the left factor, the right one and the result.
    layouts: [cublasLtMatrixLayout_t; 3],
    algorithm: Algorithm,
}

/// How the library computes a product: numbers that only one version of it understands.
#[derive(Clone, Copy)]
pub(super) struct Algorithm(cublasLtMatmulAlgo_t);

impl Algorithm {
    /// Reverses [`Display`](fmt::Display).
    pub fn parse(text: &str) -> Option<Self> {
        let mut data = [0; 8];
        if text.len() != 16 * data.len() || !text.is_ascii() {
            return None;
        }
        for (word, digits) in data.iter_mut().zip(text.as_bytes().chunks_exact(16)) {
            *word = u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(cublasLtMatmulAlgo_t { data }))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.data.iter().try_for_each(|word| write!(f, "{word:016x}"))
    }
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
    /// Creates a handle with [`WORKSPACE`] bytes at `workspace`; the context must be entered.
    pub fn new(context: Arc<Context>, lt: CublasLt, workspace: Address) -> Result<Self> {
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is valid.
        let status = unsafe { (lt.functions.cublasLtCreate)(&mut handle) };
        check(&lt.functions, status, || "start".into())?;
        Ok(Self { context, lt, handle, workspace, plans: HashMap::new() })
    }

    /// Returns whether a shape has an algorithm.
    pub fn knows(&self, description: &Description) -> bool {
        self.plans.contains_key(description)
    }

    /// Gives a shape the known algorithm, if it can compute that, or the first one that cuBLASLt suggests. Returns the
    /// algorithms to choose from: none if the known one is used.
    pub fn plan(
        &mut self,
        description: &Description,
        known: Option<Algorithm>,
    ) -> Result<Vec<Algorithm>> {
        if self.plans.len() >= SHAPES {
            self.drop_plans();
        }
        let plan = Unfinished::new(&self.lt.functions, description)?;
        let (algorithm, all) = match known.filter(|known| self.fits(&plan, known)) {
            Some(known) => (known, Vec::new()),
            None => {
                let all = self.suggested(&plan, description)?;
                (all[0], all)
            }
        };
        let (operation, layouts) = plan.into_parts();
        self.plans.insert(*description, Plan { operation, layouts, algorithm });
        Ok(all)
    }

    /// Gives a planned shape another algorithm.
    pub fn choose(&mut self, description: &Description, algorithm: Algorithm) {
        if let Some(plan) = self.plans.get_mut(description) {
            plan.algorithm = algorithm;
        }
    }

    /// Describes the library.
    pub fn library(&self) -> String {
        let (major, minor) = self.lt.version;
        format!("cuBLASLt {major}.{minor}")
    }

    /// Multiplies matrices at the given addresses: left factor, right factor, result. The shape must be planned, and
    /// the context entered.
    pub fn multiply(
        &mut self,
        description: Description,
        (left, right, result): (Address, Address, Address),
        (alpha, beta): (f32, f32),
        bias: Address,
    ) -> Result<()> {
        let plan = self.plans.get(&description);
        let plan =
            plan.ok_or_else(|| Error::Failed(format!("{description} has no algorithm yet")))?;
        let f = &self.lt.functions;
        if description.bias {
            let attribute = DescAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
            // SAFETY: the operation is alive; the value is a device pointer, as the attribute
            // expects.
            let status = unsafe { set_operation(f, plan.operation, attribute, &bias.0) };
            check(f, status, || "set a bias".into())?;
        }
        let [left_layout, right_layout, result_layout] = plan.layouts;
        let (alpha, beta) = (ptr::from_ref(&alpha), ptr::from_ref(&beta));
        // SAFETY: handle and descriptors are alive, and the factors are f32 in host memory, as the
        // operation says. Callers of `Device::multiply` guarantee that the matrices lie in device
        // memory. The result is read and written in place, which is allowed with one layout. The
        // workspace has the given size, and the stream lets only one product use it at a time.
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
                &plan.algorithm.0,
                self.workspace.0 as *mut c_void,
                WORKSPACE as usize,
                self.context.stream.cast(),
            )
        };
        if status != 0 {
            // If the device was lost before, report that.
            self.context.synchronize()?;
        }
        check(f, status, || format!("multiply {description}"))
    }

    /// Returns whether an algorithm can compute a shape.
    fn fits(&self, plan: &Unfinished<'_>, algorithm: &Algorithm) -> bool {
        let Some(check) = self.lt.functions.cublasLtMatmulAlgoCheck else {
            return false;
        };
        let [left, right, result] = [0, 1, 2].map(|i| plan.layouts[i]);
        let mut found = MaybeUninit::<cublasLtMatmulHeuristicResult_t>::zeroed();
        // SAFETY: everything is alive, and the result has room.
        let status = unsafe {
            check(
                self.handle,
                plan.operation,
                left,
                right,
                result,
                result,
                &algorithm.0,
                found.as_mut_ptr(),
            )
        };
        // SAFETY: it was zeroed, and the library has filled it in.
        let workspace = unsafe { (&raw const (*found.as_ptr()).workspaceSize).read() };
        status == 0 && workspace <= WORKSPACE as usize
    }

    /// Returns the algorithms for a shape, at least one, in the order of cuBLASLt's heuristics.
    fn suggested(
        &self,
        plan: &Unfinished<'_>,
        description: &Description,
    ) -> Result<Vec<Algorithm>> {
        let f = &self.lt.functions;
        let mut results =
            [const { MaybeUninit::<cublasLtMatmulHeuristicResult_t>::uninit() }; ALGORITHMS];
        let mut count = 0;
        let [left, right, result] = [0, 1, 2].map(|i| plan.layouts[i]);
        // SAFETY: everything is alive, and there is room for the requested results.
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
        check(f, status, || format!("find an algorithm to multiply {description}"))?;
        let count = usize::try_from(count).unwrap_or(0).min(ALGORITHMS);
        let usable = results[..count].iter().filter_map(|result| {
            let result = result.as_ptr();
            // SAFETY: the library has filled in as many results as it reported. The state is read
            // as a number, because newer libraries have states that the declaration lacks.
            unsafe {
                let state = (&raw const (*result).state).cast::<u32>().read();
                let fits = (&raw const (*result).workspaceSize).read() <= WORKSPACE as usize;
                (state == 0 && fits).then(|| Algorithm((&raw const (*result).algo).read()))
            }
        });
        let usable: Vec<Algorithm> = usable.collect();
        match usable.is_empty() {
            true => {
                Err(Error::Failed(format!("cuBLASLt has no algorithm to multiply {description}")))
            }
            false => Ok(usable),
        }
    }

    /// Returns the algorithm of each shape, a line for each.
    pub fn algorithms(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .plans
            .iter()
            .map(|(description, plan)| format!("{description}: {}", self.describe(&plan.algorithm)))
            .collect();
        lines.sort();
        lines
    }

    /// Describes an algorithm by the numbers of cuBLASLt's header.
    fn describe(&self, algorithm: &Algorithm) -> String {
        let Some(get) = self.lt.functions.cublasLtMatmulAlgoConfigGetAttribute else {
            return "unknown".into();
        };
        let attributes = [
            ("algorithm", AlgoAttribute::CUBLASLT_ALGO_CONFIG_ID),
            ("tile", AlgoAttribute::CUBLASLT_ALGO_CONFIG_TILE_ID),
            ("stages", AlgoAttribute::CUBLASLT_ALGO_CONFIG_STAGES_ID),
            ("split-K", AlgoAttribute::CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
            ("reduction", AlgoAttribute::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
            ("swizzle", AlgoAttribute::CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
        ];
        let values = attributes.map(|(name, attribute)| {
            let (mut value, mut written) = (0u32, 0);
            // SAFETY: the algorithm is alive, and these attributes are four bytes.
            let status = unsafe {
                get(
                    &algorithm.0,
                    attribute,
                    (&raw mut value).cast(),
                    size_of::<u32>(),
                    &mut written,
                )
            };
            match status {
                0 => format!("{name} {value}"),
                status => format!("{name}: status {status}"),
            }
        });
        values.join(", ")
    }

    /// Destroys all plans.
    fn drop_plans(&mut self) {
        let f = &self.lt.functions;
        for (_, plan) in self.plans.drain() {
            // SAFETY: created by `plan`, destroyed once. Products in progress don't need them any
            // more.
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
        self.drop_plans();
        if self.context.enter().is_ok() {
            let _ = self.context.synchronize();
            // SAFETY: created in `new`, destroyed once, and no product is in progress.
            unsafe { (self.lt.functions.cublasLtDestroy)(self.handle) };
        }
    }
}

/// The parts of a plan under construction, which are destroyed if a step fails.
struct Unfinished<'a> {
    functions: &'a Functions,
    operation: cublasLtMatmulDesc_t,
    layouts: Vec<cublasLtMatrixLayout_t>,
    preference: cublasLtMatmulPreference_t,
}

impl<'a> Unfinished<'a> {
    /// Describes a product to cuBLASLt; needs no GPU.
    fn new(f: &'a Functions, description: &Description) -> Result<Self> {
        let checked = |status| check(f, status, || format!("describe {description}"));
        let compute = match description.tf32 {
            true => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
            false => Compute::CUBLAS_COMPUTE_32F,
        };
        let mut operation = ptr::null_mut();
        // SAFETY: the pointer is valid.
        checked(unsafe {
            (f.cublasLtMatmulDescCreate)(&mut operation, compute, cudaDataType::CUDA_R_32F)
        })?;
        // From here on dropped with its contents if a step fails.
        let mut plan =
            Self { functions: f, operation, layouts: Vec::new(), preference: ptr::null_mut() };
        let transpositions = [
            (DescAttribute::CUBLASLT_MATMUL_DESC_TRANSA, description.left_transposed),
            (DescAttribute::CUBLASLT_MATMUL_DESC_TRANSB, description.right_transposed),
        ];
        for (attribute, transposed) in transpositions {
            // SAFETY: the operation is alive; the value is a cublasOperation_t, 0 or 1.
            checked(unsafe { set_operation(f, operation, attribute, &i32::from(transposed)) })?;
        }
        if description.bias {
            let attribute = DescAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE;
            let epilogue = Epilogue::CUBLASLT_EPILOGUE_BIAS as u32;
            // SAFETY: as above; the value is a cublasLtEpilogue_t.
            checked(unsafe { set_operation(f, operation, attribute, &epilogue) })?;
        }
        for layout in [description.left, description.right, description.result] {
            let Layout { element, rows, columns, leading } = layout;
            let mut made = ptr::null_mut();
            // SAFETY: the pointer is valid.
            checked(unsafe {
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
        // SAFETY: the pointer is valid.
        checked(unsafe { (f.cublasLtMatmulPreferenceCreate)(&mut plan.preference) })?;
        let [left_bytes, right_bytes, result_bytes] = description.alignments;
        let preferences = [
            (
                PrefAttribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                Reduction::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32,
            ),
            (PrefAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, left_bytes),
            (PrefAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, right_bytes),
            (PrefAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result_bytes),
            (PrefAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result_bytes),
        ];
        for (attribute, value) in preferences {
            // SAFETY: the preference is alive; these attributes are uint32_t.
            checked(unsafe { set_preference(f, plan.preference, attribute, &value) })?;
        }
        let attribute = PrefAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        // SAFETY: the preference is alive; this attribute is uint64_t.
        checked(unsafe { set_preference(f, plan.preference, attribute, &WORKSPACE) })?;
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
        // SAFETY: each was created by the library, and is null or removed from here once it is
        // passed on.
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
    // SAFETY: guaranteed by the caller.
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
    // SAFETY: guaranteed by the caller.
    unsafe {
        (functions.cublasLtMatmulPreferenceSetAttribute)(
            preference,
            attribute,
            value,
            size_of::<V>(),
        )
    }
}

/// Turns a status of cuBLASLt into an error.
fn check(functions: &Functions, status: u32, doing: impl Fn() -> String) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: the library returns a text with its own lifetime, or null.
    let words = unsafe {
        let words = (functions.cublasLtGetStatusString)(status);
        (!words.is_null()).then(|| CStr::from_ptr(words).to_string_lossy())
    };
    let words = words.unwrap_or_default();
    Err(Error::Failed(format!("cuBLASLt could not {}: {words} (status {status})", doing())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cuda::device;
    use crate::engine::cuda::device::{Matrix, Product};
    use crate::engine::cuda::driver::search::{Library, SearchPaths};

    /// NVIDIA's library, if it is found, must accept every attribute: it rejects unknown ones and
    /// values of a wrong size. It returns algorithms only on a GPU.
    #[test]
    fn descriptions_are_accepted_by_the_library() {
        let paths = SearchPaths::of_process();
        let found = paths.find(Library::CublasLt, &[13, 12], |library| CublasLt::of(&library));
        let lt = match found {
            Ok(lt) => lt,
            Err(missing) => return eprintln!("not tested without cuBLASLt: {missing}"),
        };
        assert!((12..14).contains(&lt.version.0), "{:?} of {:?}", lt.version, lt.path);
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
                epilogue: device::Epilogue::Bias(Address(512), result),
            };
            let description = Description::of(&product).unwrap();
            let plan = Unfinished::new(&lt.functions, &description).unwrap();
            let attribute = DescAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
            // SAFETY: the operation is alive; the address is not read here.
            let status =
                unsafe { set_operation(&lt.functions, plan.operation, attribute, &512u64) };
            assert_eq!(status, 0);
            let (operation, layouts) = plan.into_parts();
            // SAFETY: just created by the library, destroyed once.
            unsafe {
                for layout in layouts {
                    assert_eq!((lt.functions.cublasLtMatrixLayoutDestroy)(layout), 0);
                }
                assert_eq!((lt.functions.cublasLtMatmulDescDestroy)(operation), 0);
            }
        }
        // The library's description of a status.
        let error = check(&lt.functions, 7, || "test".into()).unwrap_err().to_string();
        assert!(error.contains("unsupported value"), "{error}");
    }
}
