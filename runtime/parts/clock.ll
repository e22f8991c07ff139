; Nanoseconds of a clock that never goes back.
declare i32 @clock_gettime(i32, ptr)

define internal i64 @now() {
  %place = alloca [2 x i64], align 8
  %fine_place = getelementptr i64, ptr %place, i64 1
  call i32 @clock_gettime(i32 $MONOTONIC, ptr %place)
  %seconds = load i64, ptr %place
  %fine = load i64, ptr %fine_place
  %coarse = mul i64 %seconds, 1000000000
  %sum = add i64 %coarse, %fine
  ret i64 %sum
}
