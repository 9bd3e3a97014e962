//! The harness itself: a cluster survives being killed, with what was committed and what was prepared.

use ratified_servers::Postgres;

#[test]
fn a_killed_cluster_comes_back_with_what_was_committed_and_prepared_and_nothing_else() {
    let mut postgres = Postgres::start();
    println!("{}", postgres.version());
    postgres.sql("CREATE TABLE t (n int); INSERT INTO t VALUES (1)");
    postgres.sql("BEGIN; INSERT INTO t VALUES (2); PREPARE TRANSACTION 'two'");
    postgres.sql("BEGIN; INSERT INTO t VALUES (3);");
    let address = postgres.address();
    postgres.crash();
    assert_eq!(postgres.address(), address);
    assert_eq!(postgres.sql("SELECT n FROM t; SELECT gid FROM pg_prepared_xacts"), "1\ntwo");
    postgres.sql("COMMIT PREPARED 'two'");
    assert_eq!(postgres.sql("SELECT n FROM t ORDER BY n"), "1\n2");
    assert!(postgres.try_sql("SELECT nonsense").unwrap_err().contains("column \"nonsense\" does not exist"));
}
