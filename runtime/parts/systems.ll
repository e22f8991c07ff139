; Made of systems.c by make parts, from b2ce7a2d6051fc1c. Do not edit.

define hidden i64 @processor() {
entry:
  ret i64 -1
}

define hidden void @move_from(i64 %processor) {
entry:
  ret void
}
