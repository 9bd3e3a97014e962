//! What other programs, other users and other mounts do to a directory.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use ratified_servers::{SmallDisk, process::User};

use super::*;

/// How beginning a transaction in this sink's directory fails.
async fn begin(sink: &FileSink<&'static str>) -> Result<(), String> {
    let begun = sink.writer().await.unwrap().begin(&txn(1)).await;
    begun.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_directory_behind_a_link_and_one_with_an_odd_name_take_files() {
    for name in ["real", "two\nlines", "ä\u{202e}\"' "] {
        let room = Room::new();
        let real = room.dir.path().join(name);
        fs::create_dir(&real).unwrap();
        symlink(&real, room.root()).unwrap();
        for (root, number) in [(room.root(), 1), (real.clone(), 2)] {
            let sink = FileSink::raw(root, target("o")).build().unwrap();
            let handle = stage(&sink, &txn(number), &["o"]).await.unwrap();
            assert_eq!(commit(&sink, &txn(number), &handle).await.unwrap(), Committed::Now);
        }
        assert_eq!(read_target(&real, &target("o")).unwrap(), b"oo");
    }
}

#[tokio::test]
async fn a_link_to_nothing_and_a_path_that_is_too_long_are_told_before_anything_is_staged() {
    let room = Room::new();
    symlink(room.dir.path().join("gone"), room.root()).unwrap();
    let told = begin(&room.builder().build().unwrap()).await.unwrap_err();
    let staging = room.staging();
    assert!(told.contains(&format!("cannot make {}: File exists", staging.display())), "{told}");
    let long = room.dir.path().join("d".repeat(256));
    let sink = FileSink::raw(&long, target("o")).build().unwrap();
    let told = begin(&sink).await.unwrap_err();
    assert!(told.contains("File name too long") && told.contains(&long.display().to_string()), "{told}");
}

#[tokio::test]
async fn a_staging_directory_on_another_file_system_is_refused_before_anything_is_staged() {
    let (room, disk) = (Room::new(), SmallDisk::mount(1 << 20));
    fs::create_dir(room.root()).unwrap();
    symlink(disk.path(), room.root().join(".staged")).unwrap();
    let told = begin(&room.builder().build().unwrap()).await.unwrap_err();
    let expected = format!(
        "cannot move files from the staging directory to {} (what is staged and what is visible must be on one file \
         system): Invalid cross-device link",
        room.root().join(format!(".probe-{CLIENT}")).display()
    );
    assert!(told.contains(&expected), "{told}");
    assert_eq!((room.staged(), names(&room.root())), (Vec::new(), vec![".staged".to_owned()]));
}

const DIR: &str = "FILE_SINK_CLOSED_DIR";

#[tokio::test]
#[ignore = "run as a process of another user by the other test"]
async fn child_of_another_user() {
    let root = PathBuf::from(std::env::var_os(DIR).unwrap());
    let told = begin(&FileSink::raw(&root, target("o")).build().unwrap()).await.unwrap_err();
    let place = if root.join(".staged").exists() {
        format!("move files from the staging directory to {}", root.join(format!(".probe-{CLIENT}")).display())
    } else {
        format!("make {}", root.join(".staged").join(CLIENT).display())
    };
    assert!(told.contains(&format!("(Determinate): cannot {place}: Permission denied")), "{told}");
}

#[tokio::test]
async fn a_directory_that_may_not_be_written_is_told_before_anything_is_staged() {
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let user = User::unprivileged(&["nobody", "daemon"]);
    for may_stage in [false, true] {
        let room = Room::new();
        fs::create_dir(room.root()).unwrap();
        if may_stage {
            fs::create_dir_all(room.staging()).unwrap();
            mode(&room.staging(), 0o777);
        }
        mode(room.dir.path(), 0o755);
        mode(&room.root(), 0o555);
        // Whoever runs the tests, the program lies where others may read it.
        let program = room.dir.path().join("program");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut child = std::process::Command::new(&program);
        child.args(["sinks::file::tests::strangers::child_of_another_user", "--exact", "--ignored"]);
        if let Some(user) = user {
            user.run(&mut child);
        }
        let output = child.env(DIR, room.root()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{told}");
        mode(&room.root(), 0o755);
    }
}

#[tokio::test]
async fn a_full_disk_is_told_at_pre_commit_and_takes_the_next_transaction_once_the_first_one_is_aborted() {
    let disk = SmallDisk::mount(1 << 20);
    let sink = FileSink::<String>::raw(disk.path().join("out"), target("o")).max_record_bytes(4 << 20).build().unwrap();
    let committer = sink.committer().await.unwrap();
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    let _ = writer.write(&txn(1), &mut handle, vec!["x".repeat(2 << 20)]).await;
    for _ in 0..2 {
        let told = writer.pre_commit(&txn(1), &mut handle).await.unwrap_err().to_string();
        assert!(told.contains("cannot write ") && told.contains("No space left on device"), "{told}");
    }
    assert_eq!(committer.list_staged(&CLIENT.parse().unwrap()).await.unwrap(), [id(1)]);
    committer.abort(&txn(1), None).await.unwrap();
    let mut handle = writer.begin(&txn(2)).await.unwrap();
    writer.write(&txn(2), &mut handle, vec!["y".repeat(800 << 10)]).await.unwrap();
    writer.pre_commit(&txn(2), &mut handle).await.unwrap();
    assert_eq!(committer.commit(&txn(2), &handle).await.unwrap(), Committed::Now);
    assert_eq!(read_target(sink.root(), &target("o")).unwrap().len(), 800 << 10);
}

#[tokio::test]
async fn a_directory_that_goes_while_a_transaction_is_open_is_told_at_pre_commit_not_behind_the_decision() {
    type Deed = fn(&Room);
    let deeds: [(&str, Deed); 3] = [
        ("No such file or directory", |room| fs::remove_dir_all(room.root()).unwrap()),
        // Renamed, and another one in its place.
        ("No such file or directory", |room| {
            fs::rename(room.root(), room.dir.path().join("aside")).unwrap();
            fs::create_dir_all(room.staging()).unwrap();
        }),
        ("another file is there", |room| {
            let file = room.staging().join(&room.staged()[0]);
            fs::copy(&file, room.dir.path().join("copy")).unwrap();
            fs::rename(room.dir.path().join("copy"), file).unwrap();
        }),
    ];
    for (why, deed) in deeds {
        let room = Room::new();
        let sink = room.builder().buffer_bytes(1).build().unwrap();
        let mut writer = sink.writer().await.unwrap();
        let mut handle = writer.begin(&txn(1)).await.unwrap();
        writer.write(&txn(1), &mut handle, vec!["o1"]).await.unwrap();
        deed(&room);
        let told = writer.pre_commit(&txn(1), &mut handle).await.unwrap_err().to_string();
        assert!(told.contains(&room.staging().display().to_string()) && told.contains(why), "{told}");
        // The job starts again.
        let handle = stage(&room.builder().build().unwrap(), &txn(2), &["o1"]).await.unwrap();
        assert_eq!(commit(&sink, &txn(2), &handle).await.unwrap(), Committed::Now);
        assert_eq!(room.read("o"), "o1");
    }
}

#[tokio::test]
async fn a_directory_that_goes_before_a_decided_commit_is_told_as_lost() {
    let room = Room::new();
    let sink = room.builder().build().unwrap();
    let handle = stage(&sink, &txn(1), &["o1"]).await.unwrap();
    fs::remove_dir_all(room.root()).unwrap();
    let refused = refusal(commit(&sink, &txn(1), &handle).await);
    assert_eq!(refused, format!("{} is lost: it is neither staged nor visible", handle.file_names()[0]));
}

/// As on a file system that does not tell names apart by case: both names lead to one directory.
#[tokio::test]
async fn clients_whose_directories_are_one_do_not_touch_each_others_files() {
    let room = Room::new();
    let sink = room.builder().build().unwrap();
    fs::create_dir_all(room.staging()).unwrap();
    symlink(room.staging(), room.root().join(".staged/Shop.Sink.3")).unwrap();
    let mut other = txn(2);
    other.client = "Shop.Sink.3".parse().unwrap();
    let (ours, theirs) = (stage(&sink, &txn(1), &["o1"]).await.unwrap(), stage(&sink, &other, &["o2"]).await.unwrap());
    assert_eq!((listed(&sink, CLIENT).await, listed(&sink, "Shop.Sink.3").await), (vec![id(1)], vec![id(2)]));
    let mut of_both = txn(2);
    of_both.client = CLIENT.parse().unwrap();
    sink.committer().await.unwrap().abort(&of_both, None).await.unwrap();
    assert_eq!(commit(&sink, &other, &theirs).await.unwrap(), Committed::Now);
    assert_eq!(commit(&sink, &txn(1), &ours).await.unwrap(), Committed::Now);
    assert_eq!(room.read("o"), "o1o2");
}
