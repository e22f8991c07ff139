; The machine code of interrupts.py, which says what it does; machinery.py fills in the names that begin with a dollar sign.

declare i64 @pthread_self()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare void @PyErr_NormalizeException(ptr, ptr, ptr)
declare void @PyErr_Clear()
declare i32 @PyException_SetTraceback(ptr, ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
declare ptr @PyLong_FromVoidPtr(ptr)
declare i64 @PyLong_AsLong(ptr)
declare void @Py_DecRef(ptr)

$now

; Before a program is called with this context.
define void @begin(ptr %context) {
$places
  %main_place = load ptr, ptr %MAIN
  %main = load i64, ptr %main_place
  %me = call i64 @pthread_self()
  %same = icmp eq i64 %main, %me
  %watches = zext i1 %same to i64
  %now = call i64 @now()
  store i64 %watches, ptr %WATCHES
  store i64 %now, ptr %LAST
  store i64 0, ptr %COMMITTED
  store atomic i64 0, ptr %STOPPED seq_cst, align 8
  ret void
}

; Called by the thread that called the program: not null when it shall end.
define i32 @poll(ptr %context) {
$places
  %stopped = load atomic i64, ptr %STOPPED monotonic, align 8
  %over = icmp ne i64 %stopped, 0
  br i1 %over, label %yes, label %going
going:
  %watches = load i64, ptr %WATCHES
  %committed = load i64, ptr %COMMITTED
  %watched = icmp ne i64 %watches, 0
  %undone = icmp eq i64 %committed, 0
  %asks = and i1 %watched, %undone
  br i1 %asks, label %timed, label %no
timed:
  %now = call i64 @now()
  %last = load i64, ptr %LAST
  %passed = sub i64 %now, %last
  %due = icmp sge i64 %passed, $INTERVAL
  br i1 %due, label %look, label %no
look:
  %gil = call i32 @PyGILState_Ensure()
  %status = call i32 @PyErr_CheckSignals()
  %raised = icmp ne i32 %status, 0
  br i1 %raised, label %ending, label %looked
ending:
  call void @PyErr_Fetch(ptr %TYPE, ptr %VALUE, ptr %TRACE)
  store atomic i64 1, ptr %STOPPED seq_cst, align 8
  br label %looked
looked:
  %then = call i64 @now()
  store i64 %then, ptr %LAST
  call void @PyGILState_Release(i32 %gil)
  br i1 %raised, label %yes, label %no
yes:
  ret i32 1
no:
  ret i32 0
}

; Set the exception that ended a program. The GIL is held.
define void @raise_it(ptr %context) {
$places
  %type = load ptr, ptr %TYPE
  %value = load ptr, ptr %VALUE
  %trace = load ptr, ptr %TRACE
  store ptr null, ptr %TYPE
  store ptr null, ptr %VALUE
  store ptr null, ptr %TRACE
  call void @PyErr_Restore(ptr %type, ptr %value, ptr %trace)
  ret void
}

; What a program calls: a Python function with the operands' address. What is raised in it, by a signal handler before
; its first bytecode too, ends the program where it can be ended, or goes to another function, which is of C.
define i32 @call_python(ptr %words, ptr %operands) {
  %error = alloca [3 x ptr], align 8
  %value_place = getelementptr ptr, ptr %error, i64 1
  %trace_place = getelementptr ptr, ptr %error, i64 2
$call_places
  %gil = call i32 @PyGILState_Ensure()
  %address = call ptr @PyLong_FromVoidPtr(ptr %operands)
  %function = load ptr, ptr %FUNCTION
  %answer = call ptr @PyObject_CallOneArg(ptr %function, ptr %address)
  call void @Py_DecRef(ptr %address)
  %raised = icmp eq ptr %answer, null
  br i1 %raised, label %failed, label %ended
ended:
  %number = call i64 @PyLong_AsLong(ptr %answer)
  call void @Py_DecRef(ptr %answer)
  br label %done
failed:
  call void @PyErr_Fetch(ptr %error, ptr %value_place, ptr %trace_place)
  call void @PyErr_NormalizeException(ptr %error, ptr %value_place, ptr %trace_place)
  %type = load ptr, ptr %error
  %value = load ptr, ptr %value_place
  %trace = load ptr, ptr %trace_place
  %traced = icmp ne ptr %trace, null
  br i1 %traced, label %tracing, label %deciding
tracing:
  call i32 @PyException_SetTraceback(ptr %value, ptr %trace)
  br label %deciding
deciding:
  %context = load ptr, ptr %CONTEXT
  %has_none = icmp eq ptr %context, null
  br i1 %has_none, label %telling, label %looking
looking:
$places
  %stopped = load atomic i64, ptr %STOPPED monotonic, align 8
  %committed = load i64, ptr %COMMITTED
  %either = or i64 %stopped, %committed
  %goes_on = icmp ne i64 %either, 0
  br i1 %goes_on, label %telling, label %stopping
stopping:
  store ptr %type, ptr %TYPE
  store ptr %value, ptr %VALUE
  store ptr %trace, ptr %TRACE
  store atomic i64 1, ptr %STOPPED seq_cst, align 8
  br label %done
telling:
  %tell = load ptr, ptr %TELL
  %told = call ptr @PyObject_CallOneArg(ptr %tell, ptr %value)
  call void @PyErr_Clear()
  call void @Py_DecRef(ptr %told)
  call void @Py_DecRef(ptr %type)
  call void @Py_DecRef(ptr %value)
  call void @Py_DecRef(ptr %trace)
  %failure = load i64, ptr %FAILURE
  br label %done
done:
  %result = phi i64 [ %number, %ended ], [ %failure, %telling ], [ 0, %stopping ]
  call void @PyGILState_Release(i32 %gil)
  %status = trunc i64 %result to i32
  ret i32 %status
}

; A chunk, unless the program shall end. The table: the context, the part, the part's own table.
define internal void @polled_part(ptr %table, i64 %chunk, i64 %worker) {
  %context = load ptr, ptr %table
  %part_place = getelementptr ptr, ptr %table, i64 1
  %own_place = getelementptr ptr, ptr %table, i64 2
$places
  %is_caller = icmp eq i64 %worker, 0
  br i1 %is_caller, label %asking, label %looking
asking:
  %status = call i32 @poll(ptr %context)
  %ended = icmp ne i32 %status, 0
  br i1 %ended, label %done, label %one
looking:
  %stopped = load atomic i64, ptr %STOPPED monotonic, align 8
  %over = icmp ne i64 %stopped, 0
  br i1 %over, label %done, label %one
one:
  %part = load ptr, ptr %part_place
  %own = load ptr, ptr %own_place
  call void %part(ptr %own, i64 %chunk, i64 %worker)
  br label %done
done:
  ret void
}

; As a pool's own: with the pool of the context, or alone. Who has begun to write state does all chunks.
define void @run(ptr %context, ptr %part, ptr %table, i64 %chunks) {
$places
  %polled = alloca [3 x ptr], align 8
  %polled_own = getelementptr ptr, ptr %polled, i64 2
  %polled_place = getelementptr ptr, ptr %polled, i64 1
  store ptr %context, ptr %polled
  store ptr %part, ptr %polled_place
  store ptr %table, ptr %polled_own
  %watches = load i64, ptr %WATCHES
  %committed = load i64, ptr %COMMITTED
  %watched = icmp ne i64 %watches, 0
  %undone = icmp eq i64 %committed, 0
  %asks = and i1 %watched, %undone
  %function = select i1 %asks, ptr @polled_part, ptr %part
  %given = select i1 %asks, ptr %polled, ptr %table
  %pool = load ptr, ptr %POOL
  %alone = icmp eq ptr %pool, null
  br i1 %alone, label %next, label %together
together:
  %run = load ptr, ptr %pool
  call void %run(ptr %pool, ptr %function, ptr %given, i64 %chunks)
  ret void
next:
  %i = phi i64 [ 0, %0 ], [ %following, %one ]
  %some = icmp slt i64 %i, %chunks
  br i1 %some, label %one, label %done
one:
  call void %function(ptr %given, i64 %i, i64 0)
  %following = add i64 %i, 1
  br label %next
done:
  ret void
}
