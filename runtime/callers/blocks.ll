; The machine code of cfunction.py that gives each thread memory of its own.

declare ptr @pthread_getspecific($KEY)
declare i32 @pthread_setspecific($KEY, ptr)
declare i32 @pthread_key_create(ptr, ptr)
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare ptr @PyCapsule_GetContext(ptr)
declare void @Py_DecRef(ptr)

@key = internal global $KEY 0

; Once in a process. Non-zero: there is no key left.
define i32 @start() {
  %status = call i32 @pthread_key_create(ptr @key, ptr @free)
  ret i32 %status
}

; The calling thread's block of at least nbytes, which follows a cache line that holds its size; null where there is no
; memory. It is kept until the thread ends.
define ptr @block(i64 %nbytes) {
  %place = alloca ptr
  %key = load $KEY, ptr @key
  %old = call ptr @pthread_getspecific($KEY %key)
  %none = icmp eq ptr %old, null
  br i1 %none, label %make, label %look
look:
  %room = load i64, ptr %old
  %fits = icmp sle i64 %nbytes, %room
  %own = getelementptr i8, ptr %old, i64 $LINE
  br i1 %fits, label %done, label %make
done:
  ret ptr %own
make:
  %whole = add i64 %nbytes, $LINE
  %failed = call i32 @posix_memalign(ptr %place, i64 $LINE, i64 %whole)
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %nothing, label %keep
keep:
  call void @free(ptr %old)
  %new = load ptr, ptr %place
  store i64 %nbytes, ptr %new
  %unset = call i32 @pthread_setspecific($KEY %key, ptr %new)
  %lost = icmp ne i32 %unset, 0
  br i1 %lost, label %drop, label %kept
kept:
  %first = getelementptr i8, ptr %new, i64 $LINE
  ret ptr %first
drop:
  %forgotten = call i32 @pthread_setspecific($KEY %key, ptr null)
  call void @free(ptr %new)
  ret ptr null
nothing:
  ret ptr null
}

; The destructor of a capsule that holds a reference.
define void @forget(ptr %capsule) {
  %held = call ptr @PyCapsule_GetContext(ptr %capsule)
  call void @Py_DecRef(ptr %held)
  ret void
}
