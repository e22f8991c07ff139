"""Tapes: one forward, then any number of backwards, planned before anything runs.

Comes in: a declared graph, the outputs whose backwards may follow, what is fed and with which sizes. Goes out: regions
to compile, and which values live between them. Nothing here runs, and the user's graph stays as it is: gradients are
written into a private continuation of it (``Derivation``), hooks included.

How the runtime uses it::

    plan = plan_tape(graph, outputs, {fed tensor: TensorType})   # once for (graph version, outputs, feeds' types)
    plan.forward                 # Region: compile and run once a tape; feeds in the order of the mapping
    plan.forward.fetches         # the outputs, then plan.saved[i].index for each saved tensor of origin "fetched"
    plan.saved                   # what a tape keeps, with bytes, source line and the declared nodes that save it
    ledger = plan.ledger(order)  # one for each tape: which nodes are spent (retention.Ledger)

    passage = ledger.admit(ys, [None or grad.shape, …])  # raises GradientError or BuffersFreedError; changes nothing
    back = plan.backward(ys, [grad is not None, …])      # BackwardPlan; derived on first demand, then remembered
    run(back.region, [value of s for s in back.reads] + grads that are given)
    freed = ledger.commit(passage, retain_graph)         # the SavedTensors that nothing can read any more: drop them

Where the value of a saved tensor is found (``SavedTensor.origin``): ``"fetched"``: fetch number ``index`` of the
forward (an output that is read as well has its place there, and costs nothing more); ``"fed"``: the fed array number
``index``, which the tape has to copy. Variables are not saved: a backward reads them as variables, and
``BackwardPlan.variables`` says which, so that the runtime can refuse it when their version changed since the forward
(``plan.variables`` is the union over single outputs). A variable that the forward itself writes is fetched instead.

Effects of the forward (print, py_call, statistics, assigns) are in ``plan.forward`` alone, so they happen once.
The effects of a backward region, in order, are those that hooks declared and ``accumulate_grad`` nodes, whose keys are
``gradient_key(tensor)``: leaves that require a gradient and tensors with ``retain_grad``, after their hooks.
Hooks and the retained set are read when ``plan_tape`` is called.
"""
