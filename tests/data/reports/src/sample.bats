@test "passes" {
    true
}
@test "fails & <says> so" {
    echo "some output"
    false
}
@test "skipped" {
    skip "not today"
}
