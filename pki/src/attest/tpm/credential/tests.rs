//! Facts about credentials, against what OpenSSL computes (`openssl kdf KBKDF`, `enc -aes-128-cfb`, `dgst -mac HMAC`).

use super::*;

const SEED: [u8; 32] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30,
    31,
];
const NAME: &str = "000bb18fec4956bb57c1c1bf53db86610b94490aa11daf647af1358537450a3c0cbe";

#[test]
fn keys_are_derived_as_the_library_specification_says() {
    let name = hex::decode(NAME).expect("hexadecimal");
    assert_eq!(hex::encode(kdfa(&SEED, b"STORAGE", &name, 128)), "1fdfe25520acb78a7d7468a75bd9da0e");
    let integrity = "bacf689f634ece301e1f1b15b072d9c87db6a69585db42b1a0cb8f73ebe2692e";
    assert_eq!(hex::encode(kdfa(&SEED, b"INTEGRITY", b"", 256)), integrity);
}

#[test]
fn a_secret_is_protected_as_the_library_specification_says() {
    let name = hex::decode(NAME).expect("hexadecimal");
    let blob = protect(&SEED, 128, &name, &[0xa5; 32]).expect("protected");
    let tag = "14fa2494d0e51ea9084e45e91871dbd23d94bdf81a9df74860b25dece7dc7425";
    let encrypted = "61cd2cd589b25182f8959903bf38eef93897352d37fe8bd9aca60661a3352faf56d8";
    assert_eq!(hex::encode(blob), format!("0020{tag}{encrypted}"));
}
