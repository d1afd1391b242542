/** A row of small bars: how often something happened, step by step. */

export function Spark({ values, label }: { values: number[]; label: string }) {
  const most = Math.max(...values, 1);
  const width = 100 / Math.max(values.length, 1);
  return (
    <svg class="spark" role="img" aria-label={label} width="110" height="24" viewBox="0 0 100 24" preserveAspectRatio="none">
      {values.map((value, at) => {
        const height = value ? Math.max((value / most) * 22, 2) : 0.8;
        return <rect key={at} x={at * width} y={24 - height} width={Math.max(width - 1, 0.5)} height={height} />;
      })}
    </svg>
  );
}
