from batchlab.analysis.assemble import assemble
from batchlab.plan import *
def test_x(synthetic_study):
    e,s,r,rows,d = synthetic_study(batch_curvature=0.0005)
    f=assemble(e,s,r,rows,d,planned_runs=24)
    for dev in (1,2,8):
        p=make_plan(f,devices=dev)
        for fmt in ("json","hf","torchtitan","nanochat","torchrun"): print(format_plan(p,fmt)) if dev==1 or fmt!="json" else 0
        print(p.paste_block)
    TrainingPlan.model_validate_json(p.model_dump_json())
