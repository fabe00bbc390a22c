// Print the top labels of each line of standard input: the C interface from Rust, without any crate.
//
//     rustc -O predict.rs -L build/native -C link-args='-Wl,-rpath,$ORIGIN'
//     echo "fresh bread" | ./predict model.wm
use std::ffi::{c_char, c_int, c_uint, CStr, CString};
use std::io::BufRead;

#[repr(C)]
struct WmModel {
    _private: [u8; 0],
}

#[link(name = "widemargin")]
extern "C" {
    fn wm_error_message() -> *const c_char;
    fn wm_open(path: *const c_char, flags: c_uint, model: *mut *mut WmModel) -> c_int;
    fn wm_close(model: *mut WmModel);
    fn wm_label_name(model: *const WmModel, label: i64, name: *mut *const c_char, length: *mut usize) -> c_int;
    fn wm_predict_text(
        model: *const WmModel,
        text: *const c_char,
        length: usize,
        k: usize,
        labels: *mut i64,
        scores: *mut f64,
        n_found: *mut usize,
    ) -> c_int;
}

/// A model that closes itself. Any number of threads may share it.
struct Model(*mut WmModel);

unsafe impl Send for Model {}
unsafe impl Sync for Model {}

fn check(status: c_int) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    let message = unsafe { CStr::from_ptr(wm_error_message()) };
    Err(message.to_string_lossy().into_owned())
}

impl Model {
    fn open(path: &str) -> Result<Model, String> {
        let path = CString::new(path).map_err(|error| error.to_string())?;
        let mut model = std::ptr::null_mut();
        check(unsafe { wm_open(path.as_ptr(), 0, &mut model) })?;
        Ok(Model(model))
    }

    fn predict(&self, text: &str, k: usize) -> Result<Vec<(String, f64)>, String> {
        let (mut labels, mut scores, mut n_found) = (vec![0i64; k], vec![0f64; k], 0usize);
        let place = text.as_ptr() as *const c_char;
        check(unsafe {
            wm_predict_text(self.0, place, text.len(), k, labels.as_mut_ptr(), scores.as_mut_ptr(), &mut n_found)
        })?;
        labels.truncate(n_found);
        labels.iter().zip(scores).map(|(&label, score)| Ok((self.label(label)?, score))).collect()
    }

    fn label(&self, label: i64) -> Result<String, String> {
        let (mut name, mut length) = (std::ptr::null(), 0usize);
        check(unsafe { wm_label_name(self.0, label, &mut name, &mut length) })?;
        let bytes = unsafe { std::slice::from_raw_parts(name as *const u8, length) };
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { wm_close(self.0) }
    }
}

fn run() -> Result<(), String> {
    let path = std::env::args().nth(1).ok_or("usage: predict MODEL < TEXTS")?;
    let model = Model::open(&path)?;
    for line in std::io::stdin().lock().lines() {
        for (label, score) in model.predict(&line.map_err(|error| error.to_string())?, 3)? {
            println!("{label} {score}");
        }
    }
    Ok(())
}

fn main() {
    if let Err(message) = run() {
        eprintln!("{message}");
        std::process::exit(1);
    }
}
