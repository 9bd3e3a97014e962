//! The harness itself: a store survives being killed, with what it had acknowledged, on the same address.

use ratified_servers::SeaweedFs;

#[test]
fn a_killed_store_comes_back_on_its_address_with_its_bucket() {
    let mut store = SeaweedFs::start();
    store.make_bucket("kept");
    let address = store.address();
    store.crash();
    assert_eq!(store.address(), address);
    assert!(store.has_bucket("kept"));
    assert!(!store.has_bucket("never-made"));
}
