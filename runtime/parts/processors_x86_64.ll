; Made of processors.c by make parts, from 08f381441891d27a. Do not edit.

define hidden void @pause() {
entry:
  tail call void @llvm.x86.sse2.pause()
  ret void
}

declare void @llvm.x86.sse2.pause()

define hidden void @keep_modes(ptr %place) {
entry:
  %tmp = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %tmp)
  %stmxcsr = load i32, ptr %tmp, align 4
  store i32 %stmxcsr, ptr %place, align 4
  ret void
}

declare void @llvm.x86.sse.stmxcsr(ptr)

define hidden void @take_modes(ptr %place) {
entry:
  %tmp = alloca i32, align 4
  %0 = load i32, ptr %place, align 4
  store i32 %0, ptr %tmp, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %tmp)
  ret void
}

declare void @llvm.x86.sse.ldmxcsr(ptr)
