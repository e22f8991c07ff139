; The machine code of results.py, which says what it does; machinery.py fills in the names that begin with a dollar sign.

declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
$advice_declaration

; Memory from the system, of at least %size bytes; null where there is none.
define internal ptr @fresh(i64 %size) {
  %place = alloca ptr, align 8
  %absurd = icmp ugt i64 %size, $absurd
  br i1 %absurd, label %none, label %measured
measured:
  %whole_pages = add i64 %size, $page_mask
  %paged = and i64 %whole_pages, -$PAGE
  %enough = add i64 %paged, $HEADER
  %huge = icmp uge i64 %size, $HUGE_FROM
  ; An end that is most of a huge page is one, too, unless an eighth of the block would be wasted.
  %end = add i64 %enough, $huge_mask
  %whole = and i64 %end, -$HUGE_PAGE
  %waste = sub i64 %whole, %size
  %eighth = lshr i64 %size, 3
  %half = icmp ule i64 %eighth, $half_huge
  %slack = select i1 %half, i64 %eighth, i64 $half_huge
  %little = icmp ule i64 %waste, %slack
  %rounded = and i1 %huge, %little
  %total = select i1 %rounded, i64 %whole, i64 %enough
  %capacity = sub i64 %total, $HEADER
  %alignment = select i1 %huge, i64 $HUGE_PAGE, i64 $HEADER
  %failed = call i32 @posix_memalign(ptr %place, i64 %alignment, i64 %total)
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %none, label %made
made:
  %begin = load ptr, ptr %place
  br i1 %huge, label %advise, label %ready
advise:
  %advised = and i64 %total, -$HUGE_PAGE
  $advice
  br label %ready
ready:
  %data = getelementptr i8, ptr %begin, i64 $HEADER
  %capacity_place = getelementptr i64, ptr %begin, i64 1
  store ptr %begin, ptr %begin
  store i64 %capacity, ptr %capacity_place
  ret ptr %data
none:
  ret ptr null
}

define internal i64 @capacity_of(ptr %data) {
  %header = getelementptr i8, ptr %data, i64 -$HEADER
  %place = getelementptr i64, ptr %header, i64 1
  %capacity = load i64, ptr %place
  ret i64 %capacity
}

define internal void @release(ptr %data) {
  %header = getelementptr i8, ptr %data, i64 -$HEADER
  %begin = load ptr, ptr %header
  call void @free(ptr %begin)
  ret void
}

; Whether the pool is this thread's until it unlocks.
define internal i1 @try_lock(ptr %pool) {
$places
  %taken = cmpxchg ptr %LOCK, i64 0, i64 1 acquire monotonic
  %mine = extractvalue { i64, i1 } %taken, 1
  ret i1 %mine
}

define internal void @unlock(ptr %pool) {
$places
  store atomic i64 0, ptr %LOCK release, align 8
  ret void
}

define internal ptr @record(ptr %pool, i64 %number) {
$places
  %at = mul i64 %number, $RECORD
  %record = getelementptr i64, ptr %RECORDS, i64 %at
  ret ptr %record
}

; Take an idle block off the records: the last one fills the gap.
define internal ptr @remove(ptr %pool, i64 %number) {
$places
  %gap = call ptr @record(ptr %pool, i64 %number)
  %capacity_place = getelementptr i64, ptr %gap, i64 $IdleRecord.CAPACITY
  %data = load ptr, ptr %gap
  %capacity = load i64, ptr %capacity_place
  %idle = load i64, ptr %IDLE
  %less = sub i64 %idle, %capacity
  store i64 %less, ptr %IDLE
  %count = load i64, ptr %COUNT
  %fewer = sub i64 %count, 1
  store i64 %fewer, ptr %COUNT
  %last = call ptr @record(ptr %pool, i64 %fewer)
  %moved = load <$RECORD x i64>, ptr %last, align 8
  store <$RECORD x i64> %moved, ptr %gap, align 8
  ret ptr %data
}

; The idle block that was given back first; there is at least one.
define internal i64 @oldest(ptr %pool) {
$places
  %count = load i64, ptr %COUNT
  br label %look
look:
  %i = phi i64 [ 0, %0 ], [ %next, %look ]
  %best = phi i64 [ 0, %0 ], [ %better, %look ]
  %least = phi i64 [ $forever, %0 ], [ %lesser, %look ]
  %record = call ptr @record(ptr %pool, i64 %i)
  %since_place = getelementptr i64, ptr %record, i64 $IdleRecord.SINCE
  %since = load i64, ptr %since_place
  %older = icmp slt i64 %since, %least
  %better = select i1 %older, i64 %i, i64 %best
  %lesser = select i1 %older, i64 %since, i64 %least
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %look, label %done
done:
  ret i64 %better
}

; An idle block that holds %size bytes and wastes an eighth at most, else a fresh one.
define ptr @take(ptr %pool, i64 %size) {
$places
  %large = icmp uge i64 %size, $RECYCLED_FROM
  br i1 %large, label %asking, label %fresh
asking:
  %mine = call i1 @try_lock(ptr %pool)
  br i1 %mine, label %looking, label %fresh
looking:
  %clock = load i64, ptr %CLOCK
  %later = add i64 %clock, 1
  store i64 %later, ptr %CLOCK
  %count = load i64, ptr %COUNT
  %slack = lshr i64 %size, 3
  %allowed = add i64 %slack, $PAGE
  br label %check
check:
  %i = phi i64 [ %count, %looking ], [ %number, %look ]
  %some = icmp sgt i64 %i, 0
  br i1 %some, label %look, label %none
look:
  %number = sub i64 %i, 1
  %record = call ptr @record(ptr %pool, i64 %number)
  %capacity_place = getelementptr i64, ptr %record, i64 $IdleRecord.CAPACITY
  %capacity = load i64, ptr %capacity_place
  %waste = sub i64 %capacity, %size
  %fits = icmp ule i64 %waste, %allowed
  br i1 %fits, label %found, label %check
found:
  %data = call ptr @remove(ptr %pool, i64 %number)
  %recycled = load i64, ptr %RECYCLED
  %once_more = add i64 %recycled, 1
  store i64 %once_more, ptr %RECYCLED
  call void @unlock(ptr %pool)
  ret ptr %data
none:
  call void @unlock(ptr %pool)
  br label %fresh
fresh:
  %new = call ptr @fresh(i64 %size)
  ret ptr %new
}

; A block of before, whose owner is gone. NumPy also says how large the array was; the header knows better.
define void @give(ptr %pool, ptr %data, i64 %size) {
$places
  %nothing = icmp eq ptr %data, null
  br i1 %nothing, label %end, label %measured
measured:
  %capacity = call i64 @capacity_of(ptr %data)
  %limit = load i64, ptr %LIMIT
  %large = icmp uge i64 %capacity, $RECYCLED_FROM
  %allowed = icmp ule i64 %capacity, %limit
  %kept = and i1 %large, %allowed
  br i1 %kept, label %asking, label %releasing
asking:
  %mine = call i1 @try_lock(ptr %pool)
  br i1 %mine, label %counting, label %releasing
counting:
  %clock = load i64, ptr %CLOCK
  %later = add i64 %clock, 1
  store i64 %later, ptr %CLOCK
  br label %check
check:
  %count = load i64, ptr %COUNT
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %look, label %add
look:
  %oldest = call i64 @oldest(ptr %pool)
  %old_record = call ptr @record(ptr %pool, i64 %oldest)
  %old_place = getelementptr i64, ptr %old_record, i64 $IdleRecord.SINCE
  %since = load i64, ptr %old_place
  %age = sub i64 %later, %since
  %useless = icmp sgt i64 %age, $PATIENCE
  %full = icmp eq i64 %count, $MOST_IDLE
  %idle = load i64, ptr %IDLE
  %sum = add i64 %idle, %capacity
  %too_much = icmp ugt i64 %sum, %limit
  %too_many = or i1 %full, %too_much
  %over = or i1 %too_many, %useless
  br i1 %over, label %evict, label %add
evict:
  %evicted = call ptr @remove(ptr %pool, i64 %oldest)
  call void @release(ptr %evicted)
  br label %check
add:
  %record = call ptr @record(ptr %pool, i64 %count)
  %capacity_place = getelementptr i64, ptr %record, i64 $IdleRecord.CAPACITY
  %since_place = getelementptr i64, ptr %record, i64 $IdleRecord.SINCE
  store ptr %data, ptr %record
  store i64 %capacity, ptr %capacity_place
  store i64 %later, ptr %since_place
  %more = add i64 %count, 1
  store i64 %more, ptr %COUNT
  %idle_before = load i64, ptr %IDLE
  %idle_now = add i64 %idle_before, %capacity
  store i64 %idle_now, ptr %IDLE
  call void @unlock(ptr %pool)
  ret void
releasing:
  call void @release(ptr %data)
  ret void
end:
  ret void
}

define ptr @take_zeroed(ptr %pool, i64 %count, i64 %each) {
  %product = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %size = extractvalue { i64, i1 } %product, 0
  %overflow = extractvalue { i64, i1 } %product, 1
  br i1 %overflow, label %none, label %taking
taking:
  %data = call ptr @take(ptr %pool, i64 %size)
  %failed = icmp eq ptr %data, null
  br i1 %failed, label %none, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %data, i8 0, i64 %size, i1 false)
  ret ptr %data
none:
  ret ptr null
}
declare { i64, i1 } @llvm.umul.with.overflow.i64(i64, i64)

define ptr @resize(ptr %pool, ptr %data, i64 %size) {
  %nothing = icmp eq ptr %data, null
  br i1 %nothing, label %first, label %measured
first:
  %new = call ptr @take(ptr %pool, i64 %size)
  ret ptr %new
measured:
  %capacity = call i64 @capacity_of(ptr %data)
  %fits = icmp ule i64 %size, %capacity
  br i1 %fits, label %stay, label %move
stay:
  ret ptr %data
move:
  %larger = call ptr @take(ptr %pool, i64 %size)
  %failed = icmp eq ptr %larger, null
  br i1 %failed, label %none, label %copy
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %larger, ptr %data, i64 %capacity, i1 false)
  call void @give(ptr %pool, ptr %data, i64 %capacity)
  ret ptr %larger
none:
  ret ptr null
}

; All idle blocks go back to the system, unless another thread is at the pool.
define void @trim(ptr %pool) {
$places
  %mine = call i1 @try_lock(ptr %pool)
  br i1 %mine, label %check, label %end
check:
  %count = load i64, ptr %COUNT
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %one, label %done
one:
  %last = sub i64 %count, 1
  %data = call ptr @remove(ptr %pool, i64 %last)
  call void @release(ptr %data)
  br label %check
done:
  call void @unlock(ptr %pool)
  ret void
end:
  ret void
}
