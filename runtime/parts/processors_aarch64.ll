; Made of processors.c by make parts, from 453a68af5ebb9823. Do not edit.

define hidden void @pause() {
entry:
  tail call void @llvm.aarch64.hint(i32 1)
  ret void
}

declare void @llvm.aarch64.hint(i32)

define hidden void @keep_modes(ptr %place) {
entry:
  %call = tail call i64 @llvm.aarch64.get.fpcr()
  store i64 %call, ptr %place, align 8
  ret void
}

declare i64 @llvm.aarch64.get.fpcr()

define hidden void @take_modes(ptr %place) {
entry:
  %0 = load i64, ptr %place, align 8
  tail call void @llvm.aarch64.set.fpcr(i64 %0)
  ret void
}

declare void @llvm.aarch64.set.fpcr(i64)
