; Made of blocks.c by make parts KEY=uint64_t, from 4bf2e6f2be4d9458. Do not edit.

@key = internal global i64 0, align 8

define i32 @start() {
entry:
  %call = tail call i32 @pthread_key_create(ptr @key, ptr @free)
  ret i32 %call
}

declare i32 @pthread_key_create(ptr, ptr)

declare void @free(ptr)

define ptr @block(i64 %nbytes) {
entry:
  %place = alloca ptr, align 8
  %0 = load i64, ptr @key, align 8
  %call = tail call ptr @pthread_getspecific(i64 %0)
  %cmp.not = icmp eq ptr %call, null
  br i1 %cmp.not, label %if.end, label %land.lhs.true

land.lhs.true:
  %1 = load i64, ptr %call, align 8
  %cmp1.not = icmp slt i64 %1, %nbytes
  br i1 %cmp1.not, label %if.end, label %if.then

if.then:
  %add.ptr = getelementptr i8, ptr %call, i64 64
  br label %cleanup11

if.end:
  %add = add i64 %nbytes, 64
  %call2 = call i32 @posix_memalign(ptr %place, i64 64, i64 %add)
  %tobool.not = icmp eq i32 %call2, 0
  br i1 %tobool.not, label %if.end4, label %cleanup

if.end4:
  call void @free(ptr %call)
  %2 = load ptr, ptr %place, align 8
  store i64 %nbytes, ptr %2, align 8
  %3 = load i64, ptr @key, align 8
  %4 = load ptr, ptr %place, align 8
  %call5 = call i32 @pthread_setspecific(i64 %3, ptr %4)
  %tobool6.not = icmp eq i32 %call5, 0
  br i1 %tobool6.not, label %if.then7, label %if.end9

if.then7:
  %5 = load ptr, ptr %place, align 8
  %add.ptr8 = getelementptr i8, ptr %5, i64 64
  br label %cleanup

if.end9:
  %6 = load i64, ptr @key, align 8
  %call10 = call i32 @pthread_setspecific(i64 %6, ptr null)
  %7 = load ptr, ptr %place, align 8
  call void @free(ptr %7)
  br label %cleanup

cleanup:
  %retval.0 = phi ptr [ null, %if.end9 ], [ %add.ptr8, %if.then7 ], [ null, %if.end ]
  br label %cleanup11

cleanup11:
  %retval.1 = phi ptr [ %add.ptr, %if.then ], [ %retval.0, %cleanup ]
  ret ptr %retval.1
}

declare ptr @pthread_getspecific(i64)

declare i32 @posix_memalign(ptr, i64, i64)

declare i32 @pthread_setspecific(i64, ptr)

define void @forget(ptr %capsule) {
entry:
  %call = tail call ptr @PyCapsule_GetContext(ptr %capsule)
  tail call void @Py_DecRef(ptr %call)
  ret void
}

declare void @Py_DecRef(ptr)

declare ptr @PyCapsule_GetContext(ptr)
