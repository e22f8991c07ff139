; Made of systems.c by make parts, from 8425c911e18f8691. Do not edit.

define hidden i64 @processor() {
entry:
  ret i64 -1
}

define hidden void @move_from(i64 %processor) {
entry:
  ret void
}
